"""Scripts that lock themselves down, each in an interpreter of its own, and report what they can still do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import coderoom.sandbox

ORDINARY = 0x7A5C31
IDENTITIES = [
    pytest.param(None, id="as-is"),
    pytest.param(
        ORDINARY,
        id="ordinary",
        marks=[pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root can be others")],
    ),
]
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="these layers are Linux's")

_PRELUDE = """
# All of it now: an ordinary user may not be able to read the interpreter's files.
import asyncio, concurrent.futures.thread, ctypes, encodings.idna, errno, fcntl, json, mmap, os, platform, pty
import multiprocessing.managers, multiprocessing.pool, multiprocessing.popen_fork, multiprocessing.queues
import multiprocessing.sharedctypes, multiprocessing.synchronize
import resource, signal, socket, struct, subprocess, sys, tempfile, threading, time
guest = sys.modules["coderoom_guest"] = type(sys)("coderoom_guest")
guest.__path__ = [{package!r} + "/guest"]
from coderoom_guest.isolation import landlock, linux, lockdown, seccomp

MACHINE = platform.machine()
C = ctypes.CDLL(None, use_errno=True)
NUMBERS = {{**seccomp._numbers(seccomp._DENIED + seccomp._UNKNOWN + seccomp._RULED, MACHINE)}}
NUMBERS["getpid"] = 39 if MACHINE == "x86_64" else 172

def call(name, *arguments):
    '''Make a system call; return the name of its error, or nothing.'''
    number = NUMBERS.get(name, name)
    ctypes.set_errno(0)
    wide = [ctypes.c_long(part) if isinstance(part, int) else part for part in arguments]
    return "" if C.syscall(ctypes.c_long(number), *wide) >= 0 else errno.errorcode[ctypes.get_errno()]

def attempt(function, *arguments, **options):
    '''Call a function; return the name of its error, or nothing.'''
    try:
        function(*arguments, **options)
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))
    return ""

def status_of(function):
    '''Call a function in a fork; return how that ended.'''
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            os._exit(77)
    return os.waitpid(pid, 0)[1]

def no_new_privileges():
    linux.prctl(38, 1)

def drop():
    '''So that nothing comes to harm where a filter lets something through.'''
    no_new_privileges()
    linux.keep_capabilities()

def filtered(network=False, **options):
    drop()
    seccomp.install(seccomp.build_filter(MACHINE, network, **options))

def restrict(read, write, network=True):
    '''Make rules of Landlock and enforce them; return the version that enforces them.'''
    ruleset = landlock.prepare(read, write, network)
    ruleset.enforce()
    return ruleset.abi

def become(user):
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        linux.prctl(4, 1)

def report(value):
    print(json.dumps(value), flush=True)

become({user!r})
"""


def start(body: str, user: int | None = None, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start a script behind the prelude above."""
    package = str(Path(coderoom.sandbox.__path__[0]))
    script = _PRELUDE.format(package=package, user=user) + body
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=cwd)


def inside(body: str, user: int | None = None, cwd: Path | None = None) -> Any:
    """Run a script to its end and return what it reported."""
    with start(body, user, cwd) as process:
        try:
            output, problems = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, problems) == (0, ""), problems
    return json.loads(output)

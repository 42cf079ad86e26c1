"""Cells of other languages: a program under the same lockdown as a runner; used by `room`.

What a program writes to standard output and error goes into two pipes. A reader knows the order if the first pipe is
empty whenever something is written to the second: then all that is in the second is older. So the kernel stops a
process that is about to write to standard error, or to replace one of the two descriptors (as shells redirect), until
standard output has been read.
https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html#userspace-notification
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

from .forks import fork
from .frames import receive_packet, send_packet
from .isolation import linux, seccomp
from .streams import settle

_PATIENCE = 0.25
_MOST_STOPPED = 2000  # Each waits for the reader: a program that makes more is no longer stopped.
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_QUESTION, _CONTINUE = 80, 1


def run_program(message: dict[str, Any], fds: list[int], config: dict[str, Any], lock: Callable[[], None]) -> None:
    """Become a program; never returns unless it cannot be started.

    The `code` goes to the file that replaces `{file}` in `argv`, or to its standard input if there is no `{file}`. The
    descriptors are those of its standard output, its standard error, perhaps its standard input, in the place of the
    code perhaps the file that was built of it, and those of the names in `keeps`.
    """
    fds = list(fds)
    places = {"{python}": sys.executable}
    for name in reversed(message["keeps"]):
        os.set_inheritable(fds[-1], True)
        places[name] = str(fds.pop())
    if message["code"] is None:
        code = fds.pop()
    else:
        code = os.open(config["in_memory"][0], os.O_TMPFILE | os.O_RDWR, 0o600)
        data = message["code"].encode("utf-8", "surrogateescape")
        while data:
            data = data[os.write(code, data) :]
        os.lseek(code, 0, os.SEEK_SET)
    argv = list(message["argv"])
    if "{file}" not in "".join(argv):
        os.dup2(code, 0)
    else:
        os.dup2(fds[2] if len(fds) > 2 else os.open(os.devnull, os.O_RDONLY), 0)
        os.set_inheritable(code, True)
        places["{file}"] = "/dev/fd/%d" % code
    for name, place in places.items():
        argv = [part.replace(name, place) for part in argv]
    os.dup2(fds[0], 1)
    os.dup2(fds[1], 2)
    _keep_order(fds[0])
    if message["added"]:
        extend_environment(message["added"]["env"], message["added"]["programs"])
    os.setsid()
    os.chdir(config["workspace"])
    lock()
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, ("%s: %s\n" % (argv[0], error.strerror)).encode())
        os._exit(127)


def extend_environment(env: dict[str, str], programs: list[str]) -> None:
    """Set variables, and put folders first in `PATH`."""
    before = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ.update(env)
    os.environ["PATH"] = os.pathsep.join([*programs, *(each for each in before if each not in programs)])


def is_missing(name: str) -> bool:
    """Whether a program is not on the path."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return not any(os.access(os.path.join(place, name), os.X_OK) for place in places)


def start_program(message: dict[str, Any], fds: list[int], config: dict[str, Any], lock: Callable[[], None]) -> None:
    """Become a program that the host has started; never returns.

    The last descriptor is told the error number if it cannot be started, and what it is about; the others are those of
    its standard input, output and error, or one for all three, which is a terminal.
    """
    report = fds[-1]
    what = ""
    try:
        os.setsid()
        if message["terminal"]:
            fcntl.ioctl(fds[0], termios.TIOCSCTTY, 0)
        for place in (0, 1, 2):
            os.dup2(fds[0 if message["terminal"] else place], place)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program would inherit that.
            signal.signal(number, signal.SIG_DFL)
        what = message["cwd"]
        os.chdir(os.path.join(config["workspace"], what))
        what = ""
        lock()
        what = message["argv"][0]
        os.execvpe(what, message["argv"], {**os.environ, **message["env"]})
    except OSError as error:
        os.write(report, ("%d %s" % (error.errno or 0, what)).encode("utf-8", "replace"))
    os._exit(127)


def _keep_order(pipe: int) -> None:
    """Fork; the child returns to become the program, and the parent keeps the order and ends as the child ends.

    Where the kernel does not support this, the order is not kept. `pipe` is that for standard output; the one for
    standard error is descriptor 2.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = fork()
    if not pid:
        ours.close()
        with theirs, contextlib.suppress(OSError):
            listener = seccomp.listen_for_errors()
            send_packet(theirs, b".", [listener])
            os.close(listener)
        return
    # These signals are meant for the program, or come from it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    theirs.close()
    with ours:
        _, listeners = receive_packet(ours)
    if listeners:
        _attend(listeners[0], pid, pipe)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        ended_by = os.WTERMSIG(status)
        if ended_by != signal.SIGKILL:
            signal.signal(ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), ended_by)
        time.sleep(1)
    os._exit(os.WEXITSTATUS(status))


def _attend(listener: int, pid: int, pipe: int) -> None:
    process = linux.syscall("pidfd_open", pid, 0)
    events = select.poll()
    events.register(listener, select.POLLIN)
    events.register(process, select.POLLIN)
    stopped = 0
    while True:
        ready = dict(events.poll())
        if ready.get(listener, 0) & select.POLLIN:
            stopped += 1
            _answer(listener, pipe if stopped <= _MOST_STOPPED else None)
        elif ready:
            return


def _answer(listener: int, pipe: int | None) -> None:
    question = bytearray(_QUESTION)
    try:
        fcntl.ioctl(listener, _RECEIVE, question)
        if pipe is not None:
            settle([pipe], _PATIENCE)
        fcntl.ioctl(listener, _SEND, question[:8] + struct.pack("@qiI", 0, 0, _CONTINUE))
    except OSError:  # It has ended, or a signal interrupted it and it asks again.
        pass

"""System calls that Python's `os` does not have."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 28, 36
PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 38, 39, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522

# Numbers that differ between machines; those from 424 on are the same everywhere.
_NUMBERS = {
    "x86_64": {"capset": 126, "pivot_root": 155, "seccomp": 317},
    "aarch64": {"capset": 91, "pivot_root": 41, "seccomp": 277},
}
_COMMON = {
    "pidfd_send_signal": 424,
    "open_tree": 428,
    "move_mount": 429,
    "pidfd_open": 434,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None
_prctl: Any = getattr(_libc, "prctl", None)
if _prctl is not None:
    _prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)


def libc(name: str, *arguments: Any) -> int:
    """Call a function of the C library that answers -1 and sets `errno` when it fails."""
    return _call(getattr(_libc, name, None), name, arguments)


def prctl(option: int, value: int = 0) -> int:
    """Call `prctl`, more cheaply than by `libc`: every runner does it."""
    # The kernel insists that the arguments it does not use are zeros.
    return _call(_prctl, "prctl", (option, value, 0, 0, 0))


def syscall(name: str, *arguments: Any) -> int:
    """Make a system call by its name; a failed or unknown one is an `OSError`."""
    number = _COMMON.get(name) or _NUMBERS.get(os.uname().machine, {}).get(name)
    function = getattr(_libc, "syscall", None) if number is not None else None
    # Variadic: every argument must be as wide as a register.
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _call(function, name, (ctypes.c_long(number or 0), *wide))


def keep_capabilities(*numbers: int) -> None:
    """Drop all capabilities of this process but some, and all that programs would get from it."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    kept = sum(1 << number for number in numbers)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    syscall("capset", header, struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def _call(function: Any, name: str, arguments: tuple[Any, ...]) -> int:
    if function is None:
        raise OSError(38, f"{name}: not known on {os.uname().sysname} {os.uname().machine}")
    result: int = function(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result

"""Landlock: the kernel's rules of which files, ports and processes code may reach, without root; used by `lockdown`."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Sequence

from .linux import syscall

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV, _RESOLVE_UNIX = 1 << 14, 1 << 15, 1 << 16
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV | _RESOLVE_UNIX
_READ = _EXECUTE | _READ_FILE | _READ_DIR
# By ABI, how many rights there are for files: 2 adds moving between folders, 3 truncating, 5 ioctl, 9 sockets.
_COUNTS = {1: 13, 2: 14, 3: 15, 5: 16, 9: 17}
_BIND_OR_CONNECT_TCP = 3
_ABSTRACT_SOCKETS_AND_SIGNALS = 3
WITH_SCOPES = 6
"""The ABI that keeps signals from what is outside."""
_QUIET = 1  # Denials of code that this interpreter runs do not go into the host's audit log.

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
TERMINALS = ("/dev/ptmx", "/dev/pts", "/dev/tty")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)


class Ruleset:
    """Rules that wait for a process to put itself under them."""

    def __init__(self, version: int, descriptor: int) -> None:
        self.abi = version
        self._descriptor = descriptor
        _open.add(self)

    def enforce(self) -> None:
        """Put this thread, and all that it starts, under the rules for good, and close all rulesets of this process.

        Through an open one, code could loosen what the process that forked this one enforces next.
        `PR_SET_NO_NEW_PRIVS` has to be on.
        """
        if self._descriptor >= 0:
            syscall("landlock_restrict_self", self._descriptor, _QUIET if self.abi >= 7 else 0)
        for ruleset in list(_open):
            ruleset.close()

    def close(self) -> None:
        """Forget the rules."""
        _open.discard(self)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


_open: set[Ruleset] = set()


def abi() -> int:
    """Return the kernel's version of Landlock; 0: it has none, or it is off."""
    version_flag = 1
    try:
        return syscall("landlock_create_ruleset", None, 0, version_flag)
    except OSError:
        return 0


def prepare(read: Sequence[str], write: Sequence[str], network: bool = True) -> Ruleset:
    """Make rules, to be enforced later, perhaps in a forked process.

    With ABI 6, they also keep signals and abstract sockets from what is outside; without `network`, ABI 4 and later
    refuse TCP. UDP is beyond Landlock.

    Files and folders that are not there are left out; a rule is for the folder that is there now, not for one that is
    mounted over it later. Terminals can only be used if `write` names them. Harmless devices such as `/dev/null` are
    always allowed.
    """
    version = abi()
    if not version:
        return Ruleset(0, -1)
    files = (1 << max(count for first, count in _COUNTS.items() if first <= version)) - 1
    tcp = _BIND_OR_CONNECT_TCP if version >= 4 and not network else 0
    scopes = _ABSTRACT_SOCKETS_AND_SIGNALS if version >= WITH_SCOPES else 0
    attributes = struct.pack("=QQQ", files, tcp, scopes)  # The kernel takes zeros that it does not know.
    ruleset = Ruleset(version, syscall("landlock_create_ruleset", attributes, len(attributes), 0))
    try:
        for path in read:
            _allow(ruleset, path, _READ & files)
        for path in (*write, *DEVICES):
            # Making devices, and what a driver's ioctl may do, are not part of writing.
            terminal = _IOCTL_DEV if path in TERMINALS else 0
            _allow(ruleset, path, files & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV) | (terminal & files))
    except BaseException:
        ruleset.close()
        raise
    return ruleset


def _allow(ruleset: Ruleset, path: str, rights: int) -> None:
    with contextlib.ExitStack() as stack:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return
            raise
        stack.callback(os.close, place)
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _ON_FILES
        rule_path_beneath = 1
        rule = struct.pack("=Qi", rights, place)
        syscall("landlock_add_rule", ruleset._descriptor, rule_path_beneath, rule, 0)

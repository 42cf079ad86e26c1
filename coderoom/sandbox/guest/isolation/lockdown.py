"""The lockdown of a process before it runs code: limits, Landlock, no capabilities, a filter of system calls."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Sequence
from typing import NamedTuple

from . import landlock, linux, seccomp
from .linux import prctl

_MIB = 1024 * 1024
# What a program may map beyond its memory, mostly files of libraries.
_ADDRESS_SLACK = 512 * _MIB

# User 0 gets no capabilities, ambient ones cannot be raised, and all of this is locked.
_SECUREBITS = 0xEF


class Lockdown(NamedTuple):
    """What code and each of its processes may still do, as JSON's types only, since it comes with the boot data.

    Attributes:
        read: What Landlock lets it read and execute; `None`: no Landlock.
        write: What Landlock lets it change.
        use_seccomp: Whether there is a filter of system calls.
        own_pid_only: For a wall without a PID namespace: code can signal no process but the runner, which leads its own
            session. Where Landlock confines signals, those to its own children still work.
        local_sockets: Whether it may make AF_UNIX sockets: only where it can reach none of the host's.
        address_space: Whether the address space is limited too; some programs reserve far more than they use.
        processes: The processes and threads of the user; `None`: not limited here.
        forks: Whether it may enter the namespaces of a fork of its room.
    """

    network: bool
    memory_bytes: int
    open_files: int
    file_bytes: int
    read: Sequence[str] | None = None
    write: Sequence[str] = ()
    use_seccomp: bool = True
    own_pid_only: bool = False
    local_sockets: bool = False
    address_space: bool = True
    processes: int | None = None
    forks: bool = False


class Prepared:
    """A lockdown whose expensive part is done: the paths of the rules are open, and the filter is built.

    Make it behind the wall, when everything is mounted and `/dev` is complete. A process may apply it in each of its
    forks. A layer that this machine does not support is an `OSError`.
    """

    def __init__(self, lockdown: Lockdown) -> None:
        self.lockdown = lockdown
        self._ruleset = landlock.Ruleset(0, -1)
        if lockdown.read is not None:
            self._ruleset = landlock.prepare(lockdown.read, lockdown.write, lockdown.network)
        self.landlock_abi = self._ruleset.abi
        self._program = b""
        if lockdown.use_seccomp:
            self._program = seccomp.build_filter(
                os.uname().machine,
                lockdown.network,
                seccomp.SOME_PID if lockdown.own_pid_only else None,
                signals=self.landlock_abi < 6,  # From 6 on, Landlock confines them, and lets through those to children.
                local_sockets=lockdown.local_sockets,
                forks=lockdown.forks,
            )
        self._limits = list(_limits(lockdown))
        self._settled = False
        self._address_space = 0
        prctl(linux.PR_GET_NO_NEW_PRIVS)  # The first call of a C function is slow.

    def settle(self) -> None:
        """Apply the part that forks inherit and that does not disturb a supervisor, so that `apply` in a fork is cheap.

        The limit on the address space is not in it.
        """
        # Landlock and capabilities belong to a thread: other threads would stay free. A fork always has one thread. The
        # folder has one link for each.
        threads = os.stat("/proc/self/task").st_nlink - 2
        if threads != 1:
            raise OSError(
                errno.EBUSY, f"this process has {threads} threads; only one with a single thread can be locked down"
            )
        self._settled = True
        for limit, value in self._limits:
            _bound(limit, value)
        with open("/proc/self/statm", "rb") as file:
            pages = [int(word) for word in file.read().split()]
        page, memory = resource.getpagesize(), self.lockdown.memory_bytes
        data = pages[5] * page
        if data >= memory:
            raise OSError(
                errno.ENOMEM,
                f"a limit of {memory} bytes of memory: the interpreter and what it has preloaded already take {data}; "
                "raise the limit, or preload less",
            )
        _bound(resource.RLIMIT_DATA, memory)
        self._address_space = pages[0] * page + memory + _ADDRESS_SLACK
        prctl(
            linux.PR_SET_NO_NEW_PRIVS, 1
        )  # Without it, an ordinary user may set neither a filter nor Landlock's rules.
        try:
            prctl(linux.PR_SET_SECUREBITS, _SECUREBITS)
            for capability in range(64):
                prctl(linux.PR_CAPBSET_DROP, capability)
        except OSError as error:
            # It may not change them, or there are no more capabilities.
            if error.errno not in (errno.EPERM, errno.EINVAL):
                raise

    def apply(self) -> None:
        """Lock this process down. After an error the code must not run."""
        if not self._settled:
            self.settle()
        if self.lockdown.own_pid_only and os.getsid(0) != os.getpid():
            os.setsid()
        if self.lockdown.address_space:
            self.bound_address_space()
        linux.keep_capabilities()
        self._ruleset.enforce()
        if self._program:
            seccomp.install(seccomp.for_pid(self._program, os.getpid()))

    def bound_address_space(self) -> None:
        """Limit the address space, which not every program tolerates: those that code starts do not get it."""
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = self._address_space if hard == resource.RLIM_INFINITY else min(self._address_space, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _limits(lockdown: Lockdown) -> Sequence[tuple[int, int]]:
    limits = [
        (resource.RLIMIT_FSIZE, lockdown.file_bytes),
        (resource.RLIMIT_NOFILE, lockdown.open_files),
        # Unlike 0, this also disables a program of the host that handles core files.
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_MEMLOCK, 65_536),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 1024),
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_NICE, 0),
    ]
    if lockdown.processes is not None:
        limits.append((resource.RLIMIT_NPROC, lockdown.processes))
    return limits


def _bound(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))

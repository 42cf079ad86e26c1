"""A filter of system calls (seccomp) for code behind a wall; used by `lockdown`."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping
from typing import NamedTuple

from . import linux

# Stands for the pid of a process that is not forked yet; larger than any real pid.
SOME_PID = 0x3E8AC5D7

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

_KILL = 0x80000000
_ALLOW = 0x7FFF0000
_ASK = 0x7FC00000
_EPERM = 0x00050000 | errno.EPERM
_ENOSYS = 0x00050000 | errno.ENOSYS
_EOPNOTSUPP = 0x00050000 | errno.EOPNOTSUPP

_LOAD = 0x20
_AND = 0x54
_JUMP = 0x05
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_RETURN = 0x06

# CLONE_NEW*, and CLONE_PARENT, which would give the parent of this process unknown children.
_CLONE_FORBIDDEN = 0x7E020000 | 0x8000
_SET_ID_BITS = 0o6000
_O_CREATES = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE
_TERMINAL_INPUT = (0x5412, 0x541C, 0x5423)  # TIOCSTI, TIOCLINUX, TIOCSETD
_SET_OWNER_IOCTLS = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_SET_OWNER_FCNTLS = (8, 15)  # F_SETOWN, F_SETOWN_EX
# One kind at a time, and not those of a process.
_NAMESPACES = (linux.CLONE_NEWUSER, linux.CLONE_NEWPID, linux.CLONE_NEWNS, linux.CLONE_NEWIPC, linux.CLONE_NEWNET)
_UNIX = 1
_INTERNET = (2, 10)
_SOCKET_TYPE = 0xF
_STREAM, _DATAGRAM, _PACKETS = 1, 2, 5
_SOL_SOCKET = 1
_SOCKET_OPTIONS = (7, 8, 13, 32, 33)  # The sizes of buffers, and SO_LINGER.
# Of IPv4 and IPv6: the rules of iptables, arptables and ebtables.
_SOL_IP = (0, 41)
_PACKET_FILTERS = (64, 65, 96, 97, 128, 129)
# Requests to sockets and interfaces, and those that change no interface.
_OF_NETWORKS = 0x8900
_READS_OF_NETWORKS = (
    *range(0x8901, 0x8908),
    0x8910,
    0x8912,
    0x8913,
    0x8915,
    0x8917,
    0x8919,
    0x891B,
    0x891D,
    0x8921,
    0x8927,
    0x8933,
)
_PROTOCOLS = (0, 6, 17)  # The default, TCP and UDP; others load kernel modules.

# A system call's name, its number on x86_64, its number on aarch64.
# Always denied, in this order: inspecting other processes; mounts and namespaces; keys and programs in the kernel; the
# machine's state; files without their paths; memory that belongs to no process.
_DENIED = """
ptrace 101 117  process_vm_readv 310 270  process_vm_writev 311 271  process_madvise 440 440  kcmp 312 272
pidfd_getfd 438 438
mount 165 40  umount2 166 39  pivot_root 155 41  chroot 161 51  open_tree 428 428  move_mount 429 429  fsopen 430 430
fsconfig 431 431  fsmount 432 432  fspick 433 433  mount_setattr 442 442  open_tree_attr 467 467  unshare 272 97
keyctl 250 219  add_key 248 217  request_key 249 218  bpf 321 280  perf_event_open 298 241  userfaultfd 323 282
io_uring_setup 425 425  io_uring_enter 426 426  io_uring_register 427 427
kexec_load 246 104  kexec_file_load 320 294  create_module 174 -  init_module 175 105  finit_module 313 273
delete_module 176 106  get_kernel_syms 177 -  query_module 178 -  reboot 169 142  swapon 167 224  swapoff 168 225
acct 163 89  quotactl 179 60  quotactl_fd 443 443  syslog 103 116  iopl 172 -  ioperm 173 -  modify_ldt 154 -
uselib 134 -  settimeofday 164 170  clock_settime 227 112  adjtimex 159 171  clock_adjtime 305 266
sethostname 170 161  setdomainname 171 162  vhangup 153 58  nfsservctl 180 42
name_to_handle_at 303 264  open_by_handle_at 304 265  fanotify_init 300 262  lookup_dcookie 212 18
memfd_create 319 279  memfd_secret 447 447  shmget 29 194  shmat 30 196  shmctl 31 195  shmdt 67 197  semget 64 190
semop 65 193  semctl 66 191  semtimedop 220 192  msgget 68 186  msgsnd 69 189  msgrcv 70 188  msgctl 71 187
mq_open 240 180  mq_unlink 241 181  io_setup 206 0
"""
# The C library and programs work without these; a filter cannot see the arguments of clone3 and openat2.
_UNKNOWN = """
clone3 435 435  openat2 437 437  statmount 457 457  listmount 458 458
"""
# fallocate fills a disk at once; the C library writes zeros instead. Attributes outlive the process that set them.
_UNSUPPORTED = """
fallocate 285 47  setxattr 188 5  lsetxattr 189 6  fsetxattr 190 7  setxattrat 463 463
"""
_RULED = """
clone 56 220  personality 135 92  ioctl 16 29  fcntl 72 25  socket 41 198  socketpair 53 199  chmod 90 -  fchmod 91 52
fchmodat 268 53  fchmodat2 452 452  open 2 -  openat 257 56  creat 85 -  mknod 133 -  mknodat 259 33  kill 62 129
tkill 200 130  tgkill 234 131  rt_sigqueueinfo 129 138  rt_tgsigqueueinfo 297 240  pidfd_send_signal 424 424
prlimit64 302 261  setpriority 141 140  ioprio_set 251 30  sched_setscheduler 144 119  sched_setparam 142 118
sched_setattr 314 274  sched_setaffinity 203 122  setsockopt 54 208  setns 308 268
"""
_OF_OUTPUT = """
write 1 64  writev 20 66  dup2 33 -  dup3 292 24
"""
# Numbers between a machine's own ones and the common ones, and those of newer calls, are unknown.
_LAST_OWN = {"x86_64": 336, "aarch64": 294}
_FIRST_COMMON = 424
_NEWEST = 469


class _Test(NamedTuple):
    """Whether an argument is one of some values, or none of them.

    Only the low 32 bits count: the kernel uses no more of any argument that is tested here.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    wanted: bool = True


class _Rule(NamedTuple):
    """Allows a system call if all tests of one of its alternatives hold; else it is not permitted, or as given."""

    alternatives: tuple[tuple[_Test, ...], ...]
    otherwise: int = _EPERM


def build_filter(
    machine: str,
    network: bool,
    own_pid_only: int | None = None,
    *,
    signals: bool = True,
    local_sockets: bool = False,
    forks: bool = False,
) -> bytes:
    """Build the filter as a program of classic BPF.

    Args:
        machine: The machine's name, as in `os.uname()`; unknown system calls are an `OSError`.
        network: Whether TCP and UDP sockets may be made.
        own_pid_only: For a wall without a PID namespace: the only process that may be signalled, besides its process
            group; it must lead its own session. `SOME_PID`: see `for_pid`.
        signals: `False` exempts signals from `own_pid_only`, where Landlock confines them.
        local_sockets: Whether sockets of the family AF_UNIX may be made: only where code can reach none of the host's,
            by path or abstract name.
        forks: Whether a process may enter namespaces: the kernel lets it enter those of a fork of its room only.
    """
    actions = _file_rules()
    # Buffered data belongs to no process, and closing a lingering socket blocks.
    options = ((_Test(1, (_SOL_SOCKET,), wanted=False),), (_Test(2, _SOCKET_OPTIONS, wanted=False),))
    actions["setsockopt"] = _Rule(options)
    internet = (_Test(0, _INTERNET), _Test(1, (_STREAM, _DATAGRAM), _SOCKET_TYPE), _Test(2, _PROTOCOLS))
    local = (_Test(0, (_UNIX,)),)
    alternatives = (internet,) * network + (local,) * local_sockets
    actions["socket"] = _Rule(alternatives) if alternatives else _EPERM
    # A datagram socket of a pair can still send, or connect, to any other one.
    types = (_STREAM, _PACKETS) + (_DATAGRAM,) * local_sockets
    actions["socketpair"] = _all(_Test(0, (_UNIX,)), _Test(1, types, _SOCKET_TYPE))
    actions["setns"] = _EPERM
    actions["clone"] = _all(_Test(0, (0,), _CLONE_FORBIDDEN))
    actions["personality"] = _all(_Test(0, (0, 0xFFFFFFFF)))
    actions["ioctl"] = _all(_Test(1, _TERMINAL_INPUT, wanted=False))
    if forks:
        actions["setns"] = _all(_Test(1, _NAMESPACES))
        # Who enters them has rights there for a moment, which code may keep; over a network, too.
        elsewhere = (_Test(1, (_SOL_SOCKET, *_SOL_IP), wanted=False),)
        filters = (_Test(1, _SOL_IP), _Test(2, _PACKET_FILTERS, wanted=False))
        actions["setsockopt"] = _Rule(((_Test(1, (_SOL_SOCKET,)), options[1][0]), elsewhere, filters))
        of_networks = _Test(1, (_OF_NETWORKS,), 0xFFFFFF00, wanted=False)
        unlike_input = _Test(1, _TERMINAL_INPUT, wanted=False)
        actions["ioctl"] = _Rule(((unlike_input, of_networks), (_Test(1, _READS_OF_NETWORKS),)))
    # No limits and priorities for other processes of the same user, such as the room's supervisor.
    itself = (0,) if own_pid_only is None else (0, own_pid_only)
    for name in ("prlimit64", "sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity"):
        actions[name] = _all(_Test(0, itself))
    actions["setpriority"] = _all(_Test(0, (0,)), _Test(1, itself))
    actions["ioprio_set"] = _all(_Test(0, (1,)), _Test(1, itself))
    if own_pid_only is not None and signals:
        # No signals to other processes, neither directly nor to the owner of a file.
        actions["kill"] = _all(_Test(0, (own_pid_only, 0, -own_pid_only & 0xFFFFFFFF)))
        for name in ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            actions[name] = _all(_Test(0, (own_pid_only,)))
        actions["pidfd_send_signal"] = _EPERM
        actions["fcntl"] = _all(_Test(1, _SET_OWNER_FCNTLS, wanted=False))
        actions["ioctl"] = _all(_Test(1, _TERMINAL_INPUT + _SET_OWNER_IOCTLS, wanted=False))
    ruled = _numbers(_RULED, machine)
    by_number: dict[int, int | _Rule] = {ruled[name]: action for name, action in actions.items() if name in ruled}
    by_number.update(dict.fromkeys(_numbers(_DENIED, machine).values(), _EPERM))
    by_number.update(dict.fromkeys(_numbers(_UNKNOWN, machine).values(), _ENOSYS))
    by_number.update(dict.fromkeys(_numbers(_UNSUPPORTED, machine).values(), _EOPNOTSUPP))
    return _assemble(machine, by_number)


def for_pid(program: bytes, pid: int) -> bytes:
    """Return a program that was built for `SOME_PID` with a real pid in its place."""
    for sign in (1, -1):
        program = program.replace(_word(sign * SOME_PID), _word(sign * pid))
    return program


def install(program: bytes) -> None:
    """Apply a filter to this process and all that it starts; it cannot be removed.

    `PR_SET_NO_NEW_PRIVS` must be set.
    """
    all_threads = 1
    if _apply(program, all_threads):
        raise OSError(errno.EBUSY, "seccomp: another thread has a filter of its own")


def listen_for_errors() -> int:
    """Make a listener that this process and its children ask before they write to standard error.

    They also ask before they replace the descriptor of standard output or error, as shells do that redirect.
    """
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    new_listener = 8
    return _apply(build_asking_filter(os.uname().machine), new_listener)


def build_asking_filter(machine: str) -> bytes:
    """Build the filter of `listen_for_errors`."""
    writing = _Rule(((_Test(0, (2,), wanted=False),),), otherwise=_ASK)
    replacing = _Rule(((_Test(1, (1, 2), wanted=False),),), otherwise=_ASK)
    rules = {"write": writing, "writev": writing, "dup2": replacing, "dup3": replacing}
    numbers = _numbers(_OF_OUTPUT, machine)
    return _assemble(machine, {number: rules[name] for name, number in numbers.items()}, unknown=_ALLOW, foreign=_ALLOW)


def _apply(program: bytes, flags: int) -> int:
    instructions = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog, without ctypes' structures, which are slow.
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    set_mode_filter = 1
    return linux.syscall("seccomp", set_mode_filter, flags, header)


def _file_rules() -> dict[str, int | _Rule]:
    """No set-user-ID files: on the host they would run with the rights of the workspace's owner."""

    def mode(argument: int) -> _Test:
        return _Test(argument, (0,), _SET_ID_BITS)

    def opening(flags: int) -> _Rule:
        return _Rule(((_Test(flags, (0,), _O_CREATES),), (mode(flags + 1),)))

    second, third = _all(mode(1)), _all(mode(2))
    rules: dict[str, int | _Rule] = {"chmod": second, "fchmod": second, "fchmodat": third, "fchmodat2": third}
    rules.update({"creat": second, "mknod": second, "mknodat": third, "open": opening(1), "openat": opening(2)})
    return rules


def _all(*tests: _Test) -> _Rule:
    return _Rule((tests,))


def _word(value: int) -> bytes:
    return struct.pack("<I", value & 0xFFFFFFFF)


def _numbers(table: str, machine: str) -> dict[str, int]:
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {machine!r}: only for {', '.join(_ARCHITECTURES)}")
    words = table.split()
    column = list(_ARCHITECTURES).index(machine) + 1
    rows = [words[start : start + 3] for start in range(0, len(words), 3)]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def _assemble(machine: str, actions: Mapping[int, int | _Rule], unknown: int = _ENOSYS, foreign: int = _KILL) -> bytes:
    """Build a program: what to do by system calls' numbers, for `unknown` ones and for those of other machines."""
    steps: list[tuple[int, int | _Rule]] = []
    for number in range(_NEWEST + 2):
        known = number <= _LAST_OWN[machine] or _FIRST_COMMON <= number <= _NEWEST
        action = actions.get(number, _ALLOW) if known else unknown
        if not steps or steps[-1][1] != action:
            steps.append((number, action))
    if machine == "x86_64":
        # Some programs call -1 on purpose.
        steps += [(_X32, foreign), (0xFFFFFFFF, unknown)]
    program = _Program()
    program.search(
        steps, {rule: program.rule(rule) for rule in dict.fromkeys(actions.values()) if isinstance(rule, _Rule)}
    )
    program.put(_LOAD, 0)
    start = program.here()
    program.put(_RETURN, foreign)
    program.put(_JUMP_EQUAL, _ARCHITECTURES[machine], yes=start)
    program.put(_LOAD, 4)
    return program.code()


class _Program:
    """A program, written from its end, since jumps only go forward.

    A place in it is the number of instructions from there to the end.
    """

    def __init__(self) -> None:
        self._backwards: list[bytes] = []

    def here(self) -> int:
        return len(self._backwards)

    def put(self, code: int, value: int, yes: int | None = None, no: int | None = None) -> None:
        """Prepend an instruction; a jump without a place goes to the next one."""
        skips = [0 if place is None else self.here() - place for place in (yes, no)]
        self._backwards.append(struct.pack("<HBBI", code, *skips, value))

    def code(self) -> bytes:
        return b"".join(reversed(self._backwards))

    def rule(self, rule: _Rule) -> int:
        """Prepend a rule and return its place."""
        self.put(_RETURN, rule.otherwise)
        failed = self.here()
        self.put(_RETURN, _ALLOW)
        allowed = self.here()
        for tests in reversed(rule.alternatives):
            passed = allowed
            for test in reversed(tests):
                self._test(test, passed, failed)
                passed = self.here()
            failed = self.here()
        return self.here()

    def _test(self, test: _Test, passed: int, failed: int) -> None:
        found, other = (passed, failed) if test.wanted else (failed, passed)
        for index, value in enumerate(reversed(test.values)):
            self.put(_JUMP_EQUAL, value, yes=found, no=other if index == 0 else None)
        if test.mask != 0xFFFFFFFF:
            self.put(_AND, test.mask)
        self.put(_LOAD, 16 + 8 * test.argument)

    def search(self, steps: list[tuple[int, int | _Rule]], rules: dict[_Rule, int]) -> None:
        """Prepend a binary search for the last step that is not above the number."""
        if len(steps) == 1:
            action = steps[0][1]
            if isinstance(action, int):
                self.put(_RETURN, action)
            else:
                self.put(_JUMP, self.here() - rules[action])
            return
        middle = len(steps) // 2
        self.search(steps[middle:], rules)
        upper = self.here()
        self.search(steps[:middle], rules)
        self.put(_JUMP_AT_LEAST, steps[middle][0], yes=upper)

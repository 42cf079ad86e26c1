"""The first step of a worker, which finishes its wall and drops privileges, and of a room, which gets namespaces.

A parent of the worker may stay, which waits for it and ends what it leaves behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..copying import copy_folder
from ..forks import fork
from ..frames import Channel, send_packet
from . import linux, mounts

_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40
_NAMESPACES = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS

_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_CAP_DAC_OVERRIDE, _CAP_KILL = 1, 5
_SECONDS_TO_END = 5.0
SOCKET_BYTES = 212_992
"""The bytes that a socket buffers before a writer has to wait."""


def boot(config: dict[str, Any]) -> None:
    """Finish the wall; an `OSError`: the wall cannot be built here.

    Call this once, in a process with one thread. With `enter` or `supervised`, a fork returns; the caller waits for it
    and ends as it ends. With `enter`, the fork is the first process of a new namespace.

    Args:
        config: The boot data of the wall on the host:

            - `enter`: build everything here: `user` (whether in a user namespace), `network`, `hostname`, `root` (see
              `mounts.build_root`), `inside` (where this package will be);
            - `supervised`: whether the caller has to end everything with the worker, and the worker with the host;
              `private`: a folder to remove then;
            - `proc`: whether only `/proc` is missing; `open`: folders that every user may write to;
            - `workspace`: its path; `owner`: the owner of its files, if they must be shown as the worker's;
              `guarded`: see `mounts.guard`;
            - `identity`: the user and group to become; `keep_privileges`: whether to keep all privileges;
            - `environment`: the whole environment; `packages`: folders for `sys.path`;
            - for rooms, to which the engine passes it on: `rooms`, whether they have `namespaces` of their own or are
              `plain`; `scratch`: the folder for temporary files; `below_tmp`: mounts there that stay; `lockdown`: the
              arguments of `Lockdown`.
    """
    identity = None if config.get("identity") is None else tuple(config["identity"])
    die_with_parent()
    os.umask(0o022)  # The worker that uses these files may be another user.
    if config.get("enter") is not None:
        _enter(config["enter"])
    elif config.get("proc"):
        mounts.mount_proc()
    if config.get("supervised"):
        supervise(config.get("private"))
        os.setsid()
    for place in config.get("open", ()):
        os.chmod(place, 0o1777)
    owner = config.get("owner")
    if owner is not None and identity is not None:
        mounts.idmap(config["workspace"], tuple(owner), identity)
    mounts.guard(config["workspace"], config.get("guarded", ()))
    if not config.get("keep_privileges"):
        for number in range(64):
            try:
                # While the process may still change it. Without it, no program that is started gets a capability back.
                linux.prctl(linux.PR_CAPBSET_DROP, number)
            except OSError:  # There are no more capabilities, or they cannot be changed.
                break
        if identity is not None:
            uid, gid = identity
            os.setgroups([])
            os.setresgid(gid, gid, gid)  # The group first: without root it could not be changed any more.
            os.setresuid(uid, uid, uid)
            # A change of user resets both; if not dumpable, /proc/self is root's and namespaces cannot be nested.
            linux.prctl(linux.PR_SET_DUMPABLE, 1)
            die_with_parent()
        linux.keep_capabilities()
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)  # No set-user-ID program, and what seccomp and Landlock ask for.
    if config.get("environment") is not None:
        os.environ.clear()
        os.environ.update(config["environment"])
        time.tzset()
    sys.path.extend(path for path in config.get("packages", ()) if os.path.isdir(path))


def _enter(enter: dict[str, Any]) -> None:
    flags = _NAMESPACES
    uid, gid = os.getuid(), os.getgid()
    if enter["user"]:
        flags |= linux.CLONE_NEWUSER
    if not enter["network"]:
        flags |= linux.CLONE_NEWNET
    linux.libc("unshare", flags)
    if enter["user"]:
        # Until then, all users and groups in the namespace are nobody.
        _map_ids(f"1000 {uid} 1", f"1000 {gid} 1")
    supervise()  # Only a child is in the new process namespace, the first one as its process 1.
    os.setsid()
    socket.sethostname(enter["hostname"])
    if not enter["network"]:
        _start_loopback()
    mounts.build_root(enter["root"])
    # What is imported from now on is found at the new place only.
    isolation = __name__.rpartition(".")[0]
    for name, below in ((isolation.rpartition(".")[0], ()), (isolation, ("isolation",))):
        sys.modules[name].__path__[:] = [os.path.join(enter["inside"], "guest", *below)]
    sys.path_importer_cache.clear()


def _start_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP | _IFF_RUNNING))


def probe(control_fd: int) -> None:
    """Boot, and report the result to the host; runs in place of a worker's `main`.

    The configuration and the answer are one packet of JSON each.
    """
    with socket.socket(fileno=control_fd) as sock:
        sock.set_inheritable(False)
        config = json.loads(sock.recv(1 << 20))
        try:
            boot(config["boot"])
            answer = {"nested": _in_child(_nest) if config["nest"] else "not tried"}
            if "read" in config["boot"]["lockdown"]:
                # In a child: nothing that is locked down can be unlocked.
                answer["error"] = _in_child(lambda: _lock_down(config["boot"]["lockdown"]))
        except mounts.IdmapError as error:
            answer = {"idmap": str(error)}
        except OSError as error:
            answer = {"error": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sock.send(json.dumps(answer).encode())


def _in_child(attempt: Callable[[], None]) -> str:
    """Try something in a child process; return the error, or an empty text."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            attempt()
        except OSError as error:
            os.write(writer, str(error).encode() or b"?")
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = file.read()
    os.waitpid(child, 0)
    return said.decode(errors="replace")


def _nest() -> None:
    def mount_own() -> None:
        mounts.mount_proc()
        mounts.mount_tmpfs("/tmp", 65536, "1777")

    _unshare_room()
    said = _in_child(mount_own)  # A child, since `/proc` can be mounted only from within the process namespace.
    if said:
        raise OSError(said)


def _lock_down(settings: dict[str, Any]) -> None:
    """Lock this process down, as a runner does, and check that this has an effect."""
    from . import lockdown

    many = 1 << 40
    limits: dict[str, Any] = {"memory_bytes": many, "open_files": 64, "file_bytes": many}
    lockdown.Prepared(lockdown.Lockdown(network=False, **limits, **settings)).apply()
    try:
        os.close(os.open("/proc/self/status", os.O_RDONLY))
    except PermissionError:
        return
    raise OSError("Landlock has no effect here")


def enter_room(config: dict[str, Any], tell: Callable[[int], None], within: Sequence[int] = ()) -> bool:
    """Enter new namespaces, if `rooms` says so, and return whether that was done.

    With namespaces, a fork returns, which is process 1 of its own process namespace. When it ends, the kernel ends
    everything in the room. `tell` is called with the process id of the room's first process, as the worker has it.

    `within` has the user namespace and the process namespace of another room, inside of which the new ones shall be:
    the kernel lets the processes of that one enter these.
    """
    if config["rooms"] != "namespaces":
        die_with_parent()
        tell(os.getpid())
        return False
    if within:
        for fd, kind in zip(within, (linux.CLONE_NEWUSER, linux.CLONE_NEWPID)):  # noqa: B905 (Python 3.8)
            linux.libc("setns", fd, kind)
        if fork():  # The child is in the process namespace, and this one is not.
            os._exit(0)
    _unshare_room(linux.CLONE_NEWNET if config["network_per_room"] else 0)
    if fork():  # The child is process 1 of the namespace; this one is not in it.
        os._exit(0)
    os.setsid()
    tell(int(os.readlink("/proc/self")))  # This is still the worker's `/proc`.
    linux.libc("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)  # Keeps this tree and others apart.
    mounts.mount_proc()  # The old one shows the processes of all rooms.
    if config["terminals"]:
        mounts.mount_terminals()
    if config["network_per_room"]:
        _start_loopback()
        for name in ("tcp_rmem", "tcp_wmem"):
            with open(f"/proc/sys/net/ipv4/{name}", "w") as file:  # They would grow to what nobody counts.
                file.write(f"4096 65536 {SOCKET_BYTES}")
    # It has the memory of other processes: of checkpoints, and of those that run other tests. And a process that enters
    # this room has rights here for a moment.
    mounts.make_read_only("/proc")
    for place in dict.fromkeys(
        [*config["in_memory"], *([config["workspace"]] if within and not config["overlay"] else [])]
    ):
        mode = "755" if place == config["workspace"] else "1777"
        # An interpreter below /tmp is mounted there already.
        mounts.cover(place, config["limits"]["disk_bytes"], mode, config["kept"] if place == "/tmp" else ())
    return True


def hand_over_listeners(fd: int, ports: list[int]) -> None:
    """Make the sockets at which the proxy of the host serves a room, and send them to the host.

    The first port is that of the proxy. At the others, code finds hosts by their names, which it resolves with the last
    socket (DNS): each name gets an address of the loopback of its own.
    """
    sockets: list[socket.socket] = []
    for port in ports:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1" if not sockets else "0.0.0.0", port))
        sock.listen(128)
        sockets.append(sock)
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    sockets.append(names)
    with socket.socket(fileno=fd) as sender:
        send_packet(sender, b".", [sock.fileno() for sock in sockets])
    for sock in sockets:
        sock.close()


def why_no_overlay(config: dict[str, Any]) -> str:
    """Why a room cannot have the workspace as an overlay; empty if it can."""

    def try_it() -> None:
        _unshare_room()
        mounts.overlay(config["workspace"], 1 << 20)

    return _in_child(try_it)


def hand_over_overlay(fd: int, config: dict[str, Any]) -> None:
    """Mount the overlay of this room's workspace, and send the descriptors of its parts to the host."""
    parts = mounts.overlay(config["workspace"], config["limits"]["disk_bytes"])
    with socket.socket(fileno=fd) as sender:
        send_packet(sender, b".", parts)
    for part in parts:
        os.close(part)


def uncover_workspace(config: dict[str, Any], within: Sequence[int], control: Channel) -> None:
    """Show the workspace of the worker in a fork's room again, whose user and mount namespaces are `within`.

    What can fail is done before the host is told; then it says whether to go on.
    """
    for fd, kind in zip(within, (linux.CLONE_NEWUSER, linux.CLONE_NEWNS)):  # noqa: B905 (Python 3.8)
        linux.libc("setns", fd, kind)
    control.send({"event": "entered"})
    if control.receive() is not None:
        mounts.uncover(config["workspace"])
        control.send({"event": "uncovered"})


def hand_over_copies(fd: int, folders: Sequence[int], size: int) -> None:
    """Copy folders into memory, and send the copies to the host. This process has namespaces of its own then."""
    _unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    copies = []
    for folder in folders:
        mounts.mount_tmpfs("/tmp", size, "0700")  # Over the one before: the descriptors stay valid.
        copies.append(os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        copy_folder(folder, copies[-1])
    with socket.socket(fileno=fd) as sender:
        send_packet(sender, b".", copies)


def _unshare_room(more: int = 0) -> None:
    """Enter the namespaces of a room, with the same user."""
    _unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC | more)


def _unshare(kinds: int) -> None:
    uid, gid = os.getuid(), os.getgid()
    linux.libc("unshare", kinds)
    _map_ids(f"{uid} {uid} 1", f"{gid} {gid} 1")


def _map_ids(users: str, groups: str) -> None:
    """Map the users and groups of a new user namespace to those outside."""
    # Without rights outside, a group may be mapped only once `setgroups` is denied (Linux 3.19): dropping a group could
    # otherwise gain access to files that deny it to that group.
    for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Get a signal when the parent ends. A change of user resets this.

    The kernel sends it with the parent's rights, so a worker that has become another user may not get it.
    """
    linux.prctl(linux.PR_SET_PDEATHSIG, int(number))


def supervise(folder: str | None = None) -> None:
    """Fork; the child returns. The parent waits for it, kills what it leaves behind, and ends as it ended.

    The parent does so at once on SIGTERM, and when the host ends. It removes `folder` at the end.
    """
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    # A signal must not end this process before its handler is set.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    die_with_parent(signal.SIGTERM)
    child = os.fork()
    if not child:
        die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 0)
        return
    try:
        _wait(child, folder)
    finally:
        os._exit(1)


def _wait(child: int, folder: str | None) -> None:
    # When the host ends it comes several times, once for each of the host's threads.
    signal.signal(signal.SIGTERM, lambda *_: _kill([child]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    with contextlib.suppress(OSError):  # An ordinary user has no capabilities.
        linux.keep_capabilities(_CAP_KILL, *(() if folder is None else (_CAP_DAC_OVERRIDE,)))
    # The host must see the sockets closed as soon as the worker has ended.
    os.closerange(3, 65536)
    pid = status = 0
    while pid != child:
        pid, status = os.waitpid(-1, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline = time.monotonic() + _SECONDS_TO_END
    while reap() and time.monotonic() < deadline:
        _kill(descendants(os.getpid()))
        time.sleep(0.001)
    if folder is not None:
        import shutil  # Late, to keep it out of every fork.

        shutil.rmtree(folder, ignore_errors=True)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def reap() -> bool:
    """Collect the children that have ended; return whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _kill(pids: list[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):  # Stopped processes cannot fork.
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def read_stat(pid: int) -> bytes:
    """The fields of `/proc/PID/stat` behind the name."""
    fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:  # Without a file object, which costs more than all the rest; a line has at most 700 bytes.
        return os.read(fd, 4096).rpartition(b")")[2]
    finally:
        os.close(fd)


def descendants(*roots: int, without: Collection[int] = ()) -> list[int]:
    """The descendants of some processes, but for some with theirs."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parents[int(name)] = int(read_stat(int(name)).split(None, 2)[1])
            except OSError:
                continue
    found: set[int] = set()
    newest = set(roots)
    while newest:
        known = found.union(roots, without)
        newest = {pid for pid, parent in parents.items() if parent in newest and pid not in known}
        found |= newest
    return sorted(found)

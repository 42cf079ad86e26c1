"""File trees made of mounts; used by `boot` and `room`."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable, Sequence
from typing import Any

from . import linux

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_SILENT, _MS_PRIVATE, _MS_SLAVE = 4096, 16384, 32768, 1 << 18, 1 << 19
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV, _ATTR_IDMAP = 1, 2, 4, 0x00100000
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
# The new tree and the old one, while both are needed.
_NEW, _OLD = "/new", "/old"


class IdmapError(OSError):
    """Files cannot be shown as another user's here: by the kernel (before Linux 5.12) or the file system."""


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    try:
        encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
        linux.libc("mount", *encoded[:3], ctypes.c_ulong(flags), encoded[3])
    except OSError as error:
        raise OSError(error.errno, f"mount of {source or kind} at {target}: {error.strerror}") from None


def mount_proc(target: str = "/proc") -> None:
    """Mount the `/proc` of this process's namespace."""
    _mount("proc", target, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def mount_terminals() -> None:
    """Mount an instance of the terminals' file system, so that there are few of them, and no others in it."""
    _mount("devpts", "/dev/pts", "devpts", _MS_NOSUID | _MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=32")


def mount_tmpfs(target: str, size: int, mode: str, owner: tuple[int, int] | None = None) -> None:
    """Mount an empty folder in memory, which belongs to `owner` if given."""
    options = f"size={size},nr_inodes={max(size // 4096, 1024)},mode={mode}"
    if owner is not None:
        options += f",uid={owner[0]},gid={owner[1]}"
    _mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV, options)


def bind(source: str, target: str, writable: bool = False, devices: bool = False) -> None:
    """Mount a file or a folder, with the mounts below it, at another place.

    All of them lose the rights of set-user-ID, and unless allowed those of devices and of writing.
    """
    _mount(source, target, None, _MS_BIND | _MS_REC | _MS_SILENT)
    attributes = _ATTR_NOSUID | (0 if devices else _ATTR_NODEV) | (0 if writable else _ATTR_RDONLY)
    try:
        _set_attributes(_AT_FDCWD, target, _AT_RECURSIVE, _Attributes(attr_set=attributes))
    except OSError as error:
        if error.errno != 38:  # ENOSYS, before Linux 5.12.
            raise OSError(error.errno, f"rights of {target}: {error.strerror}") from None
        for place in _mounts_below(target):
            # Keep its flags: some cannot be removed, and the kernel would refuse the whole request.
            _mount(None, place, None, _MS_BIND | _MS_REMOUNT | _MS_SILENT | attributes | _flags_of(place))


def _set_attributes(fd: int, path: str, flags: int, attributes: _Attributes) -> None:
    size = ctypes.sizeof(attributes)
    linux.syscall("mount_setattr", fd, ctypes.c_char_p(os.fsencode(path)), flags, ctypes.byref(attributes), size)


def _mounts_below(target: str) -> Iterable[str]:
    target = os.path.realpath(target)
    listed = "/proc/self/mountinfo"
    with open(listed if os.path.exists(listed) else _OLD + listed, "rb") as file:
        places = [line.split(b" ")[4] for line in file]
    # By hand: between two trees, no codec can be imported.
    for escaped, plain in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        places = [place.replace(escaped, plain) for place in places]
    found = map(os.fsdecode, places)
    return [place for place in found if place == target or place.startswith(target.rstrip("/") + "/")]


def _flags_of(place: str) -> int:
    names = {os.ST_RDONLY: 1, os.ST_NOSUID: 2, os.ST_NODEV: 4, os.ST_NOEXEC: 8}
    names.update({os.ST_NOATIME: 1024, os.ST_NODIRATIME: 2048, os.ST_RELATIME: 1 << 21})
    have = os.statvfs(place).f_flag
    return sum(flag for have_flag, flag in names.items() if have & have_flag)


def build_root(layout: dict[str, Any]) -> None:
    """Replace the file tree of this mount namespace, which must be this process's own.

    The layout is the host's, with `size` and `owner` of folders in memory (`None`: this process's user).
    """
    # Keep new mounts from the namespace that this one was copied from.
    _mount(None, "/", None, _MS_REC | _MS_SLAVE | _MS_SILENT)
    # A tree that contains only the old one, which is complete there, even at the place of the new tree.
    base = "/tmp" if os.path.isdir("/tmp") else "/proc"
    _mount("tmpfs", base, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755")
    os.mkdir(base + _OLD)
    os.chdir(base)
    # Not `chroot`, which a process with a descriptor of a folder outside can leave.
    linux.syscall("pivot_root", ctypes.c_char_p(b"."), ctypes.c_char_p(_OLD[1:].encode()))
    os.chdir("/")
    os.mkdir(_NEW)
    _mount("tmpfs", _NEW, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=8m")
    owner = None if layout["owner"] is None else tuple(layout["owner"])
    size = layout["size"]
    mount_tmpfs(_folder("/tmp"), size, "1777", owner)
    _folder("/run")
    for source, target in layout["read_only"]:
        bind(_OLD + source, _place(target, os.path.isdir(_OLD + source)))
    for text, path in layout["symlinks"]:
        _folder(os.path.dirname(path))
        if not os.path.lexists(_NEW + path):
            os.symlink(text, _NEW + path)
    for path, text in layout["files"].items():
        with open(_place(path, False), "w", encoding="utf-8") as file:
            file.write(text)
    # While the old `/proc` is still there: in a user namespace, the kernel allows a new one only beside one that is
    # mounted whole.
    mount_proc(_folder("/proc"))
    # Devices cannot be made in a user namespace, so the host's are bound.
    _mount("tmpfs", _folder("/dev"), "tmpfs", _MS_NOSUID, "mode=0755,size=65536")
    for name in _DEVICES:
        if os.path.exists(f"{_OLD}/dev/{name}"):
            bind(f"{_OLD}/dev/{name}", _place("/dev/" + name, False), writable=True, devices=True)
    for name, text in _DEVICE_LINKS.items():
        os.symlink(f"/proc/self/{text}", f"{_NEW}/dev/{name}")
    _folder("/dev/pts")  # For those of a room.
    os.symlink("pts/ptmx", f"{_NEW}/dev/ptmx")
    mount_tmpfs(_folder("/dev/shm"), size, "1777", owner)
    workspace = _folder(layout["place"])
    if layout["workspace"] is None:
        mount_tmpfs(workspace, size, "0755", owner)
    else:
        bind(_OLD + layout["workspace"], workspace, writable=layout["writable"])
    # Otherwise code could fill the memory with files here. Last, when all places to mount on are made.
    make_read_only(_NEW)
    make_read_only(_NEW + "/dev")
    _mount(None, _OLD, None, _MS_REC | _MS_PRIVATE | _MS_SILENT)
    linux.libc("umount2", _OLD.encode(), _MNT_DETACH)
    # This moves the scratch tree over the new one, and unmounts it there.
    os.chdir(_NEW)
    linux.syscall("pivot_root", ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))
    linux.libc("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def make_read_only(target: str) -> None:
    """Take the right of writing from what is mounted at a place."""
    _mount(None, target, None, _MS_BIND | _MS_REMOUNT | _MS_SILENT | _MS_RDONLY | _flags_of(target))


def _folder(path: str, below: str = _NEW) -> str:
    os.makedirs(below + path, mode=0o755, exist_ok=True)
    return below + path


def _place(path: str, folder: bool, below: str = _NEW) -> str:
    """A folder or an empty file to mount something on."""
    if folder:
        return _folder(path, below)
    _folder(os.path.dirname(path), below)
    if not os.path.exists(below + path):
        os.close(os.open(below + path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    return below + path


def guard(workspace: str, guarded: Sequence[tuple[str, bool]]) -> None:
    """Keep parts of the workspace from being changed or moved: a mount point cannot be moved.

    `guarded` has paths in it and whether they stay writable.
    """
    for path, writable in guarded:
        place = os.path.join(workspace, path)
        bind(place, place, writable=writable)


def cover(target: str, size: int, mode: str, kept: Sequence[str]) -> None:
    """Mount an empty folder in memory over a folder, and keep some of its contents visible.

    `kept` has the paths of mounts, or of symbolic links, below the folder.
    """
    links = {path: os.readlink(path) for path in kept if os.path.islink(path)}
    trees = {path: _clone(path) for path in kept if path not in links}
    try:
        mount_tmpfs(target, size, mode)
        for path, tree in trees.items():
            place = _place(path, stat.S_ISDIR(os.fstat(tree).st_mode), below="")
            _attach(tree, place)
        for path, text in links.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(text, path)
    finally:
        for tree in trees.values():
            os.close(tree)


def uncover(target: str) -> None:
    """Remove what `cover` has mounted; what is open in it stays open."""
    linux.libc("umount2", os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW)


def overlay(place: str, size: int) -> tuple[int, int]:
    """Mount over a folder what takes all that is written to it, in memory.

    The descriptors of that part and of the folder with it, which stay valid without this mount namespace.
    """
    lower = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mount_tmpfs(place, size, "0700")  # Hidden by what is mounted over it.
    names = [os.path.join(place, name) for name in ("upper", "work")]
    for name in names:
        os.mkdir(name, 0o700)
    upper, work = (os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for name in names)
    os.chmod(names[0], stat.S_IMODE(os.fstat(lower).st_mode))
    # Without such attributes (before Linux 6.6), a folder that is made anew would have its old contents.
    os.setxattr(upper, "user.coderoom", b"")
    # By descriptors, since a path may have any character.
    folders = f"lowerdir=/proc/self/fd/{lower},upperdir=/proc/self/fd/{upper},workdir=/proc/self/fd/{work}"
    _mount("overlay", place, "overlay", _MS_NOSUID | _MS_NODEV, f"{folders},userxattr")
    for fd in (lower, work):
        os.close(fd)
    return upper, os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _clone(path: str, recursive: int = _AT_RECURSIVE) -> int:
    place = ctypes.c_char_p(os.fsencode(path))
    return linux.syscall("open_tree", _AT_FDCWD, place, _OPEN_TREE_CLONE | recursive | os.O_CLOEXEC)


def _attach(tree: int, path: str) -> None:
    place = ctypes.c_char_p(os.fsencode(path))
    linux.syscall("move_mount", tree, ctypes.c_char_p(b""), _AT_FDCWD, place, _MOVE_MOUNT_F_EMPTY_PATH)


def idmap(target: str, outside: tuple[int, int], inside: tuple[int, int]) -> None:
    """Show the files of the user and group `outside` below a mount as those of `inside`."""
    try:
        users = _users(outside, inside)
        try:
            mount_mapped(target, target, users, _AT_RECURSIVE)
        finally:
            os.close(users)
    except OSError as error:
        raise IdmapError(error.errno, f"files with another owner: {error.strerror}") from None


def mount_mapped(source: str, target: str, users: int, recursive: int = 0) -> None:
    """Mount a folder at another place, where the owners of files are as a user namespace maps them."""
    tree = _clone(source, recursive)
    try:
        _set_attributes(tree, "", _AT_EMPTY_PATH | recursive, _Attributes(attr_set=_ATTR_IDMAP, userns_fd=users))
        _attach(tree, target)
    finally:
        os.close(tree)


def _users(outside: tuple[int, int], inside: tuple[int, int]) -> int:
    """A user namespace that maps one user and one group; a descriptor of it."""
    ours, theirs = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            linux.libc("unshare", linux.CLONE_NEWUSER)
            os.write(theirs[1], b"+")
            os.close(ours[1])
            os.read(ours[0], 1)
        finally:
            os._exit(0)
    try:
        os.close(theirs[1])
        if os.read(theirs[0], 1) != b"+":
            raise OSError(1, "no user namespace can be made")
        for kind, number in (("uid", 0), ("gid", 1)):
            with open(f"/proc/{child}/{kind}_map", "w") as file:
                file.write(f"{outside[number]} {inside[number]} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (*ours, theirs[0]):
            os.close(fd)
        os.waitpid(child, 0)

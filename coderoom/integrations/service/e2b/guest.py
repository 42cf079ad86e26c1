"""The files of a sandbox, as its code sees them: a program that runs in the session, beside the cells.

`files.py` sends this source to the sandbox's Python (3.8 or later, standard library only) and talks to it by frames: a
length of four bytes, then JSON or a part of a file; an empty frame ends a file. It has no more rights than the code of
the session has, so that links and races are no danger to the host.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import grp
import json
import os
import pwd
import select
import shutil
import stat
import struct
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

Facts = Dict[str, Any]

_HOME = "/home/user"
_PART = 256 * 1024
_MOST_ENTRIES = 50_000
_METADATA = "user.e2b."
_NEW = 0x100 | 0x80
_KINDS = {"CREATE": _NEW, "WRITE": 0x2, "REMOVE": 0x200, "RENAME": 0x40, "CHMOD": 0x4}
_ONLY_FOLDER, _IS_FOLDER = 0x1000000, 0x40000000
_FIXED = struct.Struct("iIII")


class RefusedError(Exception):
    """What is told to the client: a code of Connect, and a sentence."""


class Files:
    """Answers requests; relative paths are those below the home folder."""

    def __init__(self) -> None:
        self.home = os.getcwd()

    def place(self, path: str) -> str:
        """The absolute path of what a client names."""
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        if (path + "/").startswith(_HOME + "/") and self.home != _HOME and not os.path.isdir(_HOME):
            path = self.home + path[len(_HOME) :]
        return os.path.normpath(os.path.join(self.home, path))

    def entry(self, path: str) -> Facts:
        """What is known of a file or folder; a link is described as what it leads to."""
        facts = os.lstat(path)
        found: Facts = {"name": os.path.basename(path) or "/", "path": path}
        if stat.S_ISLNK(facts.st_mode):
            found["symlinkTarget"] = os.path.realpath(path)
            try:
                facts = os.stat(path)
            except OSError:
                pass
        kind = "FILE" if stat.S_ISREG(facts.st_mode) else "DIRECTORY" if stat.S_ISDIR(facts.st_mode) else "UNSPECIFIED"
        kind = "SYMLINK" if stat.S_ISLNK(facts.st_mode) else kind
        seconds, rest = divmod(facts.st_mtime_ns, 1_000_000_000)
        found.update(
            type="FILE_TYPE_" + kind,
            size=str(facts.st_size),
            mode=stat.S_IMODE(facts.st_mode),
            permissions=stat.filemode(facts.st_mode),
            owner=_name(pwd.getpwuid, facts.st_uid),
            group=_name(grp.getgrgid, facts.st_gid),
            modifiedTime=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + ".%09dZ" % rest,
            metadata=_metadata(path),
        )
        return found

    def stat(self, path: str) -> Facts:
        """Describe a file or folder."""
        return {"entry": self.entry(self.place(path))}

    def list(self, path: str, depth: int) -> Facts:
        """Describe what is in a folder, so many levels deep."""
        root = self.place(path)
        if not os.path.isdir(root):
            os.stat(root)
            raise RefusedError("invalid_argument", "path is not a directory: %s" % root)
        found: List[Facts] = []
        self._look(root, depth, found)
        return {"entries": found}

    def _look(self, folder: str, depth: int, found: List[Facts]) -> None:
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            try:
                found.append(self.entry(path))
            except OSError:  # It has been removed meanwhile.
                continue
            if len(found) > _MOST_ENTRIES:
                raise RefusedError("resource_exhausted", "There are more than %d entries." % _MOST_ENTRIES)
            if depth > 1 and os.path.isdir(path) and not os.path.islink(path):
                try:
                    self._look(path, depth - 1, found)
                except PermissionError:
                    pass

    def make_dir(self, path: str) -> Facts:
        """Make a folder and those above it."""
        path = self.place(path)
        if os.path.isdir(path):
            raise RefusedError("already_exists", "directory already exists: %s" % path)
        if os.path.lexists(path):
            raise RefusedError("invalid_argument", "path already exists but it is not a directory: %s" % path)
        os.makedirs(path)
        return {"entry": self.entry(path)}

    def move(self, source: str, destination: str) -> Facts:
        """Give a file or folder another path."""
        source, destination = self.place(source), self.place(destination)
        os.lstat(source)
        if os.path.isdir(destination):
            raise RefusedError("already_exists", "path is a directory: %s" % destination)
        os.makedirs(os.path.dirname(destination), exist_ok=True)
        shutil.move(source, destination)
        return {"entry": self.entry(destination)}

    def remove(self, path: str) -> Facts:
        """Remove a file, or a folder with all that is in it; one that is not there is no error."""
        path = self.place(path)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
        return {}

    def read(self, path: str) -> None:
        """Send the content of a file after the answer."""
        path = self.place(path)
        if os.path.isdir(path):
            raise RefusedError("invalid_argument", "path '%s' is a directory" % path)
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode) and not path.startswith(("/proc/", "/dev/")):
                raise RefusedError("invalid_argument", "path '%s' is not a file" % path)
            answer({})
            part = b"."
            while part:
                try:
                    part = os.read(file, _PART)
                except OSError:
                    os._exit(1)  # Otherwise a part would pass for the whole.
                send(part)
        finally:
            os.close(file)

    def write(self, path: str, metadata: Dict[str, str]) -> Facts:
        """Write what comes after the request."""
        path = self.place(path)
        part: Optional[bytes] = b"."
        try:
            if os.path.isdir(path):
                raise RefusedError("invalid_argument", "path '%s' is a directory" % path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            is_new = not os.path.exists(path)
            with open(path, "wb", buffering=0, opener=_open_at_once) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) and not path.startswith("/dev/"):
                    raise RefusedError("invalid_argument", "path '%s' is not a file" % path)
                while part:
                    part = left = receive()
                    while left:
                        left = left[file.write(left) :]
        finally:
            while part:  # What cannot be written has to be read all the same.
                part = receive()
        if is_new:
            os.chmod(path, 0o644)
        for name in _metadata(path) if metadata else ():
            os.removexattr(path, _METADATA + name)
        for name, value in metadata.items():
            os.setxattr(path, _METADATA + name, value.encode())
        return {"entry": self.entry(path)}

    def use(self, files: bool = False) -> Facts:
        """What the processes of this session use: bytes of memory, and seconds of processor time so far.

        With `files`, also how many bytes its files have.
        """
        room, fields_of = os.getppid(), {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/stat" % name) as file:
                    fields_of[int(name)] = file.read().rpartition(")")[2].split()
            except OSError:  # It has ended.
                pass
        inside, more = set(), {room}
        while more:
            inside |= more
            more = {pid for pid, fields in fields_of.items() if int(fields[1]) in inside} - inside
        own = [fields_of[pid] for pid in inside - {os.getpid()} if pid in fields_of]
        ticks = sum(int(each) for fields in own for each in fields[11:15])  # With children that have ended.
        pages = sum(int(fields_of[pid][21]) for pid in inside - {os.getpid(), room} if pid in fields_of)
        found = {"memory": pages * os.sysconf("SC_PAGE_SIZE"), "seconds": ticks / os.sysconf("SC_CLK_TCK"), "files": 0}
        for folder, _, names in os.walk(self.home) if files else ():
            for name in names:
                try:
                    found["files"] += os.lstat(os.path.join(folder, name)).st_size
                except OSError:  # It has been removed meanwhile.
                    pass
        return found

    def watch(self, path: str, recursive: bool, entries: bool) -> None:
        """Tell what happens in a folder until the input ends; an answer to each request says that all is told."""
        root = self.place(path)
        if not os.path.isdir(root):
            os.stat(root)
            raise RefusedError("invalid_argument", "path %s not a directory" % root)
        watch = Watch(self, root, recursive, entries)
        answer({})
        while True:
            ready = select.select([0, watch.fd], [], [])[0]
            if watch.fd in ready:
                watch.tell()
            if 0 in ready:
                if receive() is None:
                    os._exit(0)
                watch.tell()
                answer({"told": True})


class Watch:
    """What the kernel tells of a folder, and of those in it."""

    def __init__(self, files: Files, root: str, recursive: bool, entries: bool) -> None:
        self._files, self._root, self._recursive, self._entries = files, root, recursive, entries
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._folders: Dict[int, str] = {}
        self._add("")

    def _add(self, first: str) -> List[str]:
        """Watch a folder, and return what is in it already, which nothing is told of."""
        mask = sum(_KINDS.values()) | _ONLY_FOLDER
        found, left = [], [first]
        while left:
            below = left.pop()
            path = os.path.join(self._root, below)
            number = self._libc.inotify_add_watch(self.fd, os.fsencode(path), ctypes.c_uint32(mask))
            if number < 0:
                if not below:
                    raise OSError(ctypes.get_errno(), "inotify")
                continue
            self._folders[number] = below
            try:
                inside = list(os.scandir(path)) if self._recursive else []
            except OSError:  # It has been removed meanwhile, or may not be read.
                continue
            for entry in inside:
                name = os.path.join(below, entry.name)
                found.append(name)
                if entry.is_dir(follow_symlinks=False):
                    left.append(name)
        return found

    def tell(self) -> None:
        """Tell what has happened."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, _, size = _FIXED.unpack_from(data, at)
                at += _FIXED.size
                name = os.fsdecode(data[at : at + size].rstrip(b"\0"))
                at += size
                if number not in self._folders or not name:  # Some were lost, or it is the folder itself.
                    continue
                name = os.path.join(self._folders[number], name)
                for kind, bits in _KINDS.items():
                    if mask & bits:
                        self._say(kind, name)
                if mask & _NEW and mask & _IS_FOLDER and self._recursive:
                    for each in self._add(name):
                        self._say("CREATE", each)

    def _say(self, kind: str, name: str) -> None:
        event: Facts = {"name": name, "type": "EVENT_TYPE_" + kind}
        if self._entries:
            try:
                event["entry"] = self._files.entry(os.path.join(self._root, name))
            except OSError:
                pass
        answer({"event": event})


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK, 0o666)  # A pipe that nobody reads is refused.


@functools.lru_cache(maxsize=64)
def _name(find: Callable[[int], Any], number: int) -> str:
    try:
        return str(find(number)[0])
    except KeyError:
        return str(number)


def _metadata(path: str) -> Dict[str, str]:
    try:
        names = [name for name in os.listxattr(path) if name.startswith(_METADATA)]
        return {name[len(_METADATA) :]: os.getxattr(path, name).decode() for name in names}
    except (OSError, ValueError):
        return {}


def answer(facts: Facts) -> None:
    """Send an answer."""
    send(json.dumps(facts).encode())


def send(part: bytes) -> None:
    """Send a frame."""
    data = memoryview(struct.pack("<I", len(part)) + part)
    while data:
        data = data[os.write(1, data) :]


def receive() -> Optional[bytes]:
    """Wait for a frame; `None`: nothing will come any more."""
    head = _exactly(4)
    return None if head is None else _exactly(struct.unpack("<I", head)[0])


def _exactly(size: int) -> Optional[bytes]:
    parts = []
    while size:
        part = os.read(0, size)
        if not part:
            return None
        size -= len(part)
        parts.append(part)
    return b"".join(parts)


def _told(error: Exception) -> Tuple[str, str]:
    if isinstance(error, RefusedError):
        return error.args[0], error.args[1]
    if isinstance(error, FileNotFoundError):
        return "not_found", "path not found: %s" % (error.filename,)
    if isinstance(error, PermissionError):
        return "permission_denied", "permission denied: %s" % (error.filename,)
    if isinstance(error, OSError) and error.errno == errno.EOPNOTSUPP:
        return "unimplemented", "the file system of this sandbox keeps no metadata of files"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "resource_exhausted", "there is not enough disk space: %s" % (error.strerror,)
    return "invalid_argument", "%s" % (error,)


def serve() -> None:
    """Answer requests until there are no more."""
    files = Files()
    while True:
        request = receive()
        if request is None:
            return
        facts = json.loads(request)
        try:
            found = getattr(files, facts.pop("op"))(**facts)
        except (OSError, ValueError, RefusedError) as error:
            code, message = _told(error)
            found = {"error": code, "message": message}
        if found is not None:
            answer(found)


if __name__ == "__main__":
    sys.setrecursionlimit(5_000)
    serve()

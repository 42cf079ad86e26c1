"""Files that the processes of tests and code have in common: those whose paths the tests hand over.

A path is handed over if it is in a text that crosses to the code: in an argument, in what a function of the tests
returns, in an environment variable, or as the folder in which the tests work. It counts if it is in a folder for
temporary files, but not if that folder has the files of the tests, or those of all tests. A file of data beside the
tests counts too, if it is handed over itself; the code can only read it.

With each text goes what has changed below these paths: folders and regular files, at the same place on the other side.
What the code may not do: write elsewhere, or change what the tests have written and handed over as a part of a folder,
since they may compare it with what the code does.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import sys
import tempfile
from os import (
    O_CREAT,
    O_NOFOLLOW,
    O_RDONLY,
    O_TRUNC,
    O_WRONLY,
    chdir,
    chmod,
    close,
    fsdecode,
    getcwd,
    listdir,
    lstat,
    mkdir,
    read,
    rmdir,
    unlink,
    utime,
    write,
)
from os import open as open_file  # The tests may patch `os`.
from posixpath import dirname, join, normpath
from stat import S_IMODE, S_ISDIR, S_ISREG
from time import time_ns

from coderoom.sandbox.guest.decoding import as_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set

__all__ = ["HandedFiles"]

_MOST_PATHS = 20  # The latest ones that count.
_MOST_FILES = 1_000
_MOST_BYTES = 8 * 1024 * 1024
_LONGEST_PATH = 4_096
_CHUNK = 1024 * 1024
_TICK = 50_000_000  # Nanoseconds in which a file may change twice with one time of change.
_ALL_TESTS = "pytest-of-"  # pytest has the folders of all tests in `pytest-of-NAME/pytest-NUMBER`.
_CODE = (".py", ".pyc")  # Not data.
_clean = re.compile(r"/(?:\.?/)+").sub  # As `pathlib` cleans paths.
_words = re.compile(r"[^\s\"',;]+").findall


class _TooMuchError(Exception):
    pass


class _Known:
    """What is known of a file or a folder, since it has crossed."""

    def __init__(self, mark: Any, state: Any, by_code: bool, checked: int = 0) -> None:
        self.mark = mark
        self.checked = checked  # When it was read last; 0: it has been written here, and may change at once.
        self.state = state
        self.by_code = by_code


class HandedFiles:
    """One of the two sides.

    Args:
        is_code: Whether it is that of the code.
        lost: Notes why something cannot be separated, and returns the exception.
        on_first: Is called with the folder of the tests, and the one for temporary files, before the first file of the
            code is written there.
    """

    def __init__(
        self, is_code: bool, lost: Callable[[str], BaseException], on_first: Callable[[str, str], None]
    ) -> None:
        self._is_code = is_code
        self._lost = lost
        self._on_first: Optional[Callable[[str, str], None]] = on_first
        self._home = self._here = getcwd()
        self._above = join(tempfile.gettempdir(), "")
        # What has the tests, or is imported.
        self._apart = {each for each in (self._home, sys.prefix, sys.base_prefix, *sys.path) if each}
        self._paths: List[str] = []  # The latest one is the last one.
        self._told: List[str] = []
        self._single: Set[str] = set()  # What was handed over itself, and not as a part of a folder.
        self._said: Set[str] = set()  # Texts of the code with paths, which the tests may repeat.
        self._named: Set[str] = set()  # Files where the tests work that the code has named.
        self._places = self._above, join(self._home, "")
        self._known: Dict[str, _Known] = {}

    def text(self, message: Dict[str, Any], args: Sequence[Any] = ()) -> str:
        """The text of a message, with the files that go with it; `args` are what may be paths as bytes."""
        text = json.dumps(message)
        if self._is_code:
            found = self._changes() if self._paths else {}
        else:
            found = self._moved()
            bytes_of = [fsdecode(each) for each in args if type(each) is bytes and len(each) < _LONGEST_PATH]
            if found or bytes_of or "/" in text or any(each in text for each in self._places):
                self._hand_over([message, found, bytes_of])
            if self._here != self._home:  # Then each text may be a path.
                inside = (normpath(join(self._here, each)) for each in _texts([message, bytes_of]))
                self._single.update(each for each in inside if _is_in(each, self._here) and each not in self._named)
            if self._paths or self._told:
                found.update(self._changes())
                if "cannot" in found:
                    raise self._give_up(found)
        return json.dumps({**message, "files": found}) if found else text

    def hear(self, text: str, message: Dict[str, Any]) -> None:
        """Note the paths that the code says in a message, and its text. The tests may repeat them."""
        is_inside, may_hide = self._here != self._home, "\\" in text or "$byte" in text
        if self._is_code or not (is_inside or may_hide or any(each in text for each in self._places)):
            return
        for each in _texts({**message, "files": None}, is_all=True):
            each = _clean("/", each)
            if any(place in each for place in self._places):
                self._said.add(each)
            if is_inside:
                self._named.update(normpath(join(self._here, word)) for word in [each, *_words(each)])

    def _has_said(self, path: str) -> bool:
        """Whether the code has said a path, and not only a longer one."""
        find = re.compile(re.escape(_clean("/", path)) + r"(?![\w/-]|\.\w)").search
        return any(map(find, self._said))

    def take(self, found: Any) -> None:
        """Take over what has gone with a message."""
        if not found:
            return
        if "cannot" in found:
            raise self._give_up(found)
        if self._is_code:
            self._paths = found.get("paths", self._paths)
            for path in self._paths:
                with contextlib.suppress(OSError):
                    _make_folders(dirname(path))
        for each in found.get("changes", ()):
            try:
                self._take(*each)
            except (OSError, ValueError, TypeError) as error:
                raise self._lost("a file that is handed over cannot be written: %s" % error) from None
        if self._is_code and "here" in found:
            chdir(found["here"] or self._home)

    def _give_up(self, found: Dict[str, Any]) -> BaseException:
        """Share none of these files any more, or each further text would say so again."""
        self._paths = []
        return self._lost(as_text(found["cannot"]))

    def _moved(self) -> Dict[str, Any]:
        """Where the tests work now, if it is another folder than the last time."""
        try:
            here = getcwd()
        except OSError:
            return {}
        if here == self._here or not (here == self._home or self._may_share(here)):
            return {}
        self._here = here
        return {"here": "" if here == self._home else here}

    def _hand_over(self, message: Any) -> None:
        for text in _texts(message):
            if "/" in text and text[0] != "/":
                inside = normpath(join(self._here, text))
                text = inside if self._here == self._home and self._is_data(inside) else text
            start = text.find(self._above)
            if start > 0 and text[start - 1] not in "=/:":
                continue
            said = text[max(start, 0) :]
            path = normpath(said)
            if ":" in path or not (self._is_data(path) if start < 0 else self._may_share(path)):
                continue
            is_of_code = self._has_said(said) or self._has_said(path)
            if is_of_code and not any(_is_in(path, each) for each in self._paths):
                continue
            if start >= 0 and not is_of_code and not S_ISDIR(_mode(path)):
                self._single.add(path)
            whole = next((each for each in self._paths if _is_in(path, each)), path)
            self._paths = [each for each in self._paths if not _is_in(each, whole)]
            self._paths = [*self._paths, whole][-_MOST_PATHS:]

    def _may_share(self, path: str) -> bool:
        """Whether what is below a path in a folder for temporary files may be handed over."""
        if not path.startswith(self._above) or any(_is_in(path, each) or _is_in(each, path) for each in self._apart):
            return False
        parts = path[len(self._above) :].split("/")
        return not (parts[0].startswith(_ALL_TESTS) and len(parts) < 3) and not _has_links(path, self._above)

    def _is_data(self, path: str) -> bool:
        """Whether a path is a file of data beside the tests."""
        is_inside = path != self._home and _is_in(path, self._home) and not path.endswith(_CODE)
        return is_inside and S_ISREG(_mode(path)) and not _has_links(path, join(self._home, ""))

    def _changes(self) -> Dict[str, Any]:
        """What has changed since the last time, as data."""
        try:
            changes = [*self._find_changes()]
        except _TooMuchError:
            most = "%d files, or %d MiB" % (_MOST_FILES, _MOST_BYTES >> 20)
            return {"cannot": "more than %s are below a path that is handed over" % most}
        found: Dict[str, Any] = {"changes": changes} if changes else {}
        if not self._is_code and self._paths != self._told:
            self._told = found["paths"] = self._paths[:]
        return found

    def _find_changes(self) -> Iterator[List[Any]]:
        now = self._files()
        for path in sorted(self._known, reverse=True):
            if path not in now and any(_is_in(path, each) for each in self._paths):
                del self._known[path]
                yield [path, None]
        size = 0
        for path in sorted(now):
            status, old = now[path], self._known.get(path)
            if S_ISDIR(status.st_mode):
                if old is None or old.state is not None:
                    self._known[path] = _Known(None, None, self._is_code)
                    yield [path, ""]
                continue
            mark = _mark(status)
            if old is not None and old.mark == mark and status.st_ctime_ns < old.checked - _TICK:
                continue
            began = time_ns()
            try:
                content = _read(path)
            except OSError:
                continue
            mode = S_IMODE(status.st_mode) & 0o777
            known = _Known(mark, (_digest(content), mode), self._is_code, began)
            self._known[path] = known
            if old is not None and old.state == known.state:
                known.by_code = old.by_code and old.mark == mark  # The tests may have written the same.
                if old.mark[2] == status.st_mtime_ns:
                    continue
            size += len(content)
            if size > _MOST_BYTES:
                raise _TooMuchError
            yield [path, [mode, status.st_mtime_ns, base64.b64encode(content).decode()]]

    def _files(self) -> Dict[str, Any]:
        """The folders and regular files below the paths, with what the system says of them."""
        found: Dict[str, Any] = {}
        left = self._paths[:]
        while left:
            path = left.pop()
            try:
                status = lstat(path)
                if S_ISDIR(status.st_mode):
                    left += [path + "/" + name for name in listdir(path)]
                elif not S_ISREG(status.st_mode):
                    continue
            except OSError:
                continue
            found[path] = status
            if len(found) + len(left) > _MOST_FILES:
                raise _TooMuchError
        return found

    def _take(self, path: str, what: Any) -> None:
        """Make a change: `None` if nothing is there any more, empty for a folder; mode, time and content of a file."""
        path = as_text(path)
        content = None
        mode = modified = 0
        if what:
            mode, modified, content = what[0] & 0o777, what[1], base64.b64decode(as_text(what[2]))
        state = (_digest(content), mode) if content is not None else None
        by_code = not self._is_code and self._may_change(path, what is None, state)
        if what is None:
            self._known.pop(path, None)
            if _mode(path):
                rmdir(path) if S_ISDIR(_mode(path)) else unlink(path)
            return
        _make_folders(dirname(path))
        if content is not None:
            _write(path, content, mode)
            utime(path, ns=(modified, modified))
        elif not S_ISDIR(_mode(path)):
            mkdir(path)
        self._known[path] = _Known(_mark(lstat(path)) if what else None, state, by_code)

    def _may_change(self, path: str, is_gone: bool, state: Any) -> bool:
        """Refuse a change by the code that the tests have not made possible; say whether it may change that again."""
        paths = [each for each in self._paths if _is_in(path, each)]
        if path != normpath(path) or "\0" in path or not paths or _has_links(dirname(path), dirname(paths[0])):
            raise self._lost("the code changes a file that it was not given")
        old, by_code = self._known.get(path), True
        try:
            status = lstat(path)
        except OSError:
            pass
        else:
            if not S_ISDIR(status.st_mode) and not (S_ISREG(status.st_mode) and status.st_nlink == 1):
                raise self._lost("the code changes a file that is a link or a device")
            by_code = path in self._single or (old is not None and old.by_code)
            if not by_code and (is_gone or state != _state(path, status)):
                raise self._lost("the code changes a file of the tests that they have not handed over itself")
        if self._on_first is not None:
            self._on_first(self._home, self._above)
            self._on_first = None
        return by_code


def _texts(message: Any, is_all: bool = False) -> Iterator[str]:
    """The texts in a message that may be paths, or all of them."""
    left = [message]
    while left:
        each = left.pop()
        if type(each) is str:
            if is_all or (len(each) < _LONGEST_PATH and "\n" not in each and "\0" not in each):
                yield each
        elif type(each) in (list, tuple):
            left += each
        elif type(each) is dict:
            left += [*each, *each.values()]
            if is_all and ("$bytes" in each or "$bytearray" in each):
                with contextlib.suppress(ValueError, TypeError):
                    left += [fsdecode(base64.b64decode(data)) for data in each.values()]


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(join(folder, ""))


def _mode(path: str) -> int:
    try:
        return lstat(path).st_mode
    except (OSError, ValueError):
        return 0


def _mark(status: Any) -> Any:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode


def _has_links(path: str, above: str) -> bool:
    """Whether a part of a path below a folder is neither a folder nor a file, but a link, or something else."""
    while len(path) > len(above.rstrip("/")):
        mode = _mode(path)
        if mode and not (S_ISDIR(mode) or S_ISREG(mode)):
            return True
        path = dirname(path)
    return False


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content).digest()


def _state(path: str, status: Any) -> Any:
    """What counts as a change if it is another one: content and mode of a file; `None` for a folder."""
    return None if S_ISDIR(status.st_mode) else (_digest(_read(path)), S_IMODE(status.st_mode) & 0o777)


def _make_folders(path: str) -> None:
    missing = []
    while not _mode(path):
        missing.append(path)
        path = dirname(path)
    for each in reversed(missing):
        mkdir(each)


def _read(path: str) -> bytes:
    file = open_file(path, O_RDONLY | O_NOFOLLOW)
    try:
        parts = []
        size = 0
        while part := read(file, _CHUNK):
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:
                raise _TooMuchError
        return b"".join(parts)
    finally:
        close(file)


def _write(path: str, content: bytes, mode: int) -> None:
    how = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW
    try:
        file = open_file(path, how, 0o600)
    except PermissionError:
        chmod(path, 0o600)
        file = open_file(path, how, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[write(file, left) :]
    finally:
        close(file)
    chmod(path, mode)

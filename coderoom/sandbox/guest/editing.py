"""Functions for code that works on the files of a repository: list, search, read ranges, edit, apply a diff.

Each returns text for a model to read. What cannot be done raises an `EditError` that shows what is there instead, and
changes nothing. Files are text in UTF-8; other bytes in them stay as they are, and so do line ends of Windows.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
import shutil
import stat
import subprocess
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .patches import Change, Hunk, parse_diff

_MOST_CHARACTERS = 30_000
_MOST_LINES = 1_000
_LONGEST_LINE = 400
_LARGEST = 16 * 1024 * 1024
_MOST_COMPARED = 20_000
_SIMILAR = 0.6
_AROUND = 3
_SKIPPED = frozenset(
    (".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache")
) | {".coderoom"}  # Outputs that were too long for a model are none of the repository's files.


class EditError(Exception):
    """A file could not be read or changed as asked; nothing was changed."""


class _Text(NamedTuple):
    lines: List[str]
    newline: str
    ends: bool  # With a newline.

    def joined(self) -> str:
        return self.newline.join(self.lines) + (self.newline if self.ends and self.lines else "")


def list_files(pattern: str = "*", most: int = 500) -> str:
    """List the files below the current folder whose path or name fits a pattern; hidden tools' folders are left out.

    Args:
        pattern: Such as `*.py` or `src/*`.
        most: How many at most.
    """
    found = [path for path in _files(".") if _fits(path, pattern)]
    rest = len(found) - most
    more = [f"[{rest} more: narrow the pattern]"] if rest > 0 else []
    return "\n".join(found[:most] + more) or f"[No file fits {pattern!r}.]"


def search(pattern: str, path: str = ".", files: str = "*", most: int = 100) -> str:
    """Search files for a regular expression; return `path:line: text` of each line that has it.

    Args:
        pattern: The regular expression.
        path: A file, or the folder to search.
        files: Which files, such as `*.py`.
        most: How many lines at most.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise EditError(f"{pattern!r} is no regular expression: {error}. Use re.escape for plain text.") from None
    if not os.path.exists(path):
        raise EditError(_missing(path))
    rows = _by_ripgrep(pattern, path, files) if shutil.which("rg") else _by_python(expression, path, files)
    found: List[str] = []
    for row in rows:
        if len(found) == most:
            found.append(f"[Only the first {most} are shown: narrow the pattern, the path or the files.]")
            break
        found.append(row)
    return _bounded("\n".join(found)) or f"[Nothing in {path} has {pattern!r}.]"


def read_file(path: str, first: int = 1, last: Optional[int] = None) -> str:
    """Return lines of a file with their numbers.

    Args:
        path: The file.
        first: The first line, from 1 on.
        last: The last line; `None`: the end, but no more than 1,000 lines.
    """
    lines = _read(path).lines
    first = max(1, first)
    end = min(len(lines), first + _MOST_LINES - 1, len(lines) if last is None else last)
    if not lines:
        return f"[{path} is empty.]"
    if first > len(lines):
        raise EditError(f"{path} has {len(lines)} lines only.")
    text, shown = "", first - 1
    for number in range(first, end + 1):
        row = _numbered(number, lines[number - 1])
        if len(text) + len(row) > _MOST_CHARACTERS:
            break
        text, shown = f"{text}{row}\n", number
    if first > 1 or shown < len(lines):
        text += f"[Lines {first} to {shown} of {len(lines)}.]"
    return text.rstrip("\n")


def edit_file(path: str, old: str, new: str, every: bool = False) -> str:
    """Replace a text in a file, which must be there exactly once.

    Args:
        path: The file.
        old: The text, with its indentation; some lines around it make it the only one.
        new: What comes in its place.
        every: Replace it wherever it is.
    """
    if not old:
        raise EditError("`old` is empty: name the text to replace, or use write_file.")
    text = _read(path)
    whole = "\n".join(text.lines) + ("\n" if text.ends and text.lines else "")
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old == new:
        raise EditError("`old` and `new` are the same.")
    count = whole.count(old)
    if not count:
        raise EditError(_not_found(path, text.lines, old))
    if count > 1 and not every:
        places = ", ".join(
            str(whole.count("\n", 0, each.start()) + 1) for each in _first(re.finditer(re.escape(old), whole), 10)
        )
        raise EditError(
            f"The text is in {path} {count} times, at the lines {places}. Add lines around it, or set every=True."
        )
    line = whole.count("\n", 0, whole.index(old)) + 1
    changed = whole.replace(old, new)
    _write(path, changed.replace("\n", text.newline))
    if count > 1:
        return f"{path}: replaced {count} times."
    lines = changed.split("\n")
    return f"{path} now:\n{_around(lines, line, line + new.count(chr(10)))}"


def write_file(path: str, text: str) -> str:
    """Write a file, whatever was there; folders are made."""
    before = _read(path).lines if os.path.exists(path) else None
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    _write(path, text)
    lines = text.count("\n") + (not text.endswith("\n") and bool(text))
    return f"{path}: {lines} lines written{'' if before is None else f' in place of {len(before)}'}."


def apply_diff(diff: str) -> str:
    """Apply a unified diff of one or more files, all of it or nothing.

    The lines without `+` must be in the files as they are; the numbers after `@@` say only where to look first.
    """
    changes = parse_diff(diff)
    if not changes:
        raise EditError(
            "There is no diff here: each file begins with `--- a/path` and `+++ b/path`, each part with `@@`."
        )
    done: List[Tuple[Change, Optional[str]]] = []
    said: List[str] = []
    texts: Dict[str, Optional[_Text]] = {}
    for change in changes:
        source, target = change.old or change.new, change.new
        if change.old is None and texts.get(str(target), os.path.exists(str(target))):
            raise EditError(f"{target} is there already, and the diff makes it.")
        text = _Text([], "\n", True)
        if change.old is not None:
            known = texts.get(change.old)
            if change.old in texts and known is None:
                raise EditError(f"{change.old} is removed earlier in the diff.")
            text = known or _read(change.old)
        for number, hunk in enumerate(change.hunks, 1):
            text = _applied(str(source), text, hunk, f"part {number} of {len(change.hunks)}")
        if change.old is not None and change.old != target:
            texts[change.old] = None
        if target is not None:
            texts[target] = text
        elif text.lines:
            raise EditError(f"The diff removes {change.old}, but not all of its lines.")
        done.append((change, None if target is None else text.joined()))
        added = sum(row[:1] == "+" for hunk in change.hunks for row in hunk.rows)
        removed = sum(row[:1] == "-" for hunk in change.hunks for row in hunk.rows)
        said.append(f"{target or change.old}: {'removed' if target is None else f'+{added} -{removed}'}")
    for change, content in done:
        if change.new is not None and content is not None:
            folder = os.path.dirname(change.new)
            if folder:
                os.makedirs(folder, exist_ok=True)
            mode = (
                stat.S_IMODE(os.stat(change.old).st_mode)
                if change.old is not None and os.path.exists(change.old)
                else None
            )
            _write(change.new, content)
            if change.mode is not None or mode is not None:
                os.chmod(change.new, change.mode if change.mode is not None else mode or 0)
        if change.old is not None and change.old != change.new:
            os.unlink(change.old)
    return "\n".join(said)


FUNCTIONS = (list_files, search, read_file, edit_file, write_file, apply_diff)


def _applied(path: str, text: _Text, hunk: Hunk, which: str) -> _Text:
    rows, place = hunk.rows, None
    if text.newline == "\n":
        place = _place(text.lines, _side(rows, "-"), hunk.line - 1)
    if place is None:
        rows = [row.rstrip("\r") for row in rows]
        place = _place(text.lines, _side(rows, "-"), hunk.line - 1)
    old, new = _side(rows, "-"), _side(rows, "+")
    if place is None:
        raise EditError(f"The diff does not fit {path} ({which}). {_not_found(path, text.lines, chr(10).join(old))}")
    lines = [*text.lines[:place], *new, *text.lines[place + len(old) :]]
    at_end = place + len(old) == len(text.lines)
    return _Text(lines, text.newline, not hunk.no_newline if at_end else text.ends)


def _side(rows: List[str], sign: str) -> List[str]:
    return [row[1:] for row in rows if row[0] in (" ", sign)]


def _place(lines: List[str], old: List[str], expected: int) -> Optional[int]:
    """Where the lines are, nearest to where they are expected."""
    if not old:
        return min(max(expected + 1, 0), len(lines)) if lines else 0
    first = old[0]
    places = [at for at, line in enumerate(lines) if line == first and lines[at : at + len(old)] == old]
    return min(places, key=lambda at: abs(at - expected)) if places else None


def _not_found(path: str, lines: List[str], old: str) -> str:
    """Say what is in a file in the place of a text."""
    wanted = old.strip("\n").split("\n")
    if not wanted or not lines:
        return f"The text is not in {path}."
    stripped = [line.strip() for line in lines]
    bare = [line.strip() for line in wanted]
    for at in range(len(lines) - len(bare) + 1):
        if stripped[at] == bare[0] and stripped[at : at + len(bare)] == bare:
            return f"The text is in {path} with other white space:\n{_around(lines, at + 1, at + len(bare), 0)}"
    core = max(bare, key=len)
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(core)
    best, place = _SIMILAR, -1
    for at, line in enumerate(stripped[:_MOST_COMPARED]):
        matcher.set_seq1(line[:_LONGEST_LINE])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, place = ratio, at
    if place < 0:
        return f"The text is not in {path}, nor anything like it; it has {len(lines)} lines."
    begin = place - bare.index(core)
    shown = _around(lines, max(1, begin + 1), min(len(lines), begin + len(bare)), 1)
    return f"The text is not in {path}. The lines most like it:\n{shown}"


def _around(lines: List[str], first: int, last: int, more: int = _AROUND) -> str:
    begin, end = max(1, first - more), min(len(lines), last + more, first + 60)
    return "\n".join(_numbered(number, lines[number - 1]) for number in range(begin, end + 1))


def _numbered(number: int, line: str) -> str:
    rest = len(line) - _LONGEST_LINE
    return f"{number:6}| {line[:_LONGEST_LINE]}" + (f" [{rest} more characters]" if rest > 0 else "")


def _read(path: str) -> _Text:
    try:
        if os.path.isdir(path):
            raise EditError(f"{path} is a folder. Its files: {', '.join(sorted(os.listdir(path))[:50])}")
        if os.path.getsize(path) > _LARGEST:
            raise EditError(f"{path} is too large to be read as text: {os.path.getsize(path):,} bytes.")
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise EditError(_missing(path)) from None
    except OSError as error:
        raise EditError(f"{path} cannot be read: {error.strerror}.") from None
    if b"\0" in data[:8_000]:
        raise EditError(f"{path} is no text: {len(data):,} bytes.")
    whole = data.decode("utf-8", "surrogateescape")
    windows = "\r\n" in whole and whole.count("\r\n") == whole.count("\n")
    newline = "\r\n" if windows else "\n"
    lines = whole.split(newline)
    ends = lines[-1] == ""
    if ends:
        lines.pop()
    return _Text(lines, newline, ends)


def _write(path: str, text: str) -> None:
    try:
        with open(path, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise EditError(f"{path} cannot be written: {error.strerror}.") from None


def _missing(path: str) -> str:
    name = os.path.basename(path)
    there = list(_first(_files("."), _MOST_COMPARED))
    same = [each for each in there if os.path.basename(each) == name]
    similar = same or difflib.get_close_matches(path, there[:2_000], 3)
    return f"There is no file {path}." + (f" There is: {', '.join(similar[:5])}" if similar else "")


def _files(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _SKIPPED)
        for name in sorted(names):
            yield os.path.normpath(os.path.join(place, name))


def _fits(path: str, pattern: str) -> bool:
    return any(fnmatch.fnmatch(each, pattern) for each in (path, os.path.basename(path)))


def _by_python(expression: Any, path: str, files: str) -> Iterator[str]:
    for each in _files(path) if os.path.isdir(path) else [path]:
        if not _fits(each, files):
            continue
        try:
            lines = _read(each).lines
        except EditError:
            continue
        for number, line in enumerate(lines, 1):
            if expression.search(line):
                yield f"{each}:{number}: {line[:_LONGEST_LINE]}"


def _by_ripgrep(pattern: str, path: str, files: str) -> Iterator[str]:
    command = ["rg", "--no-heading", "--line-number", "--with-filename", "--null", "--sort=path", "--hidden"]
    command += [f"--glob=!{name}" for name in sorted(_SKIPPED)]
    command += [f"--max-columns={_LONGEST_LINE}", "--max-columns-preview", "--regexp", pattern, "--", path]
    found = False
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        for row in process.stdout:
            name, _, rest = row.decode("utf-8", "replace").rstrip("\r\n").partition("\0")
            number, _, text = rest.partition(":")
            found = True
            if _fits(os.path.normpath(name), files):
                yield f"{os.path.normpath(name)}:{number}: {text}"
    finally:
        process.kill()
        process.stdout.close()
        code = process.wait()
    if code > 1 and not found:  # It has another kind of regular expressions.
        yield from _by_python(re.compile(pattern), path, files)


def _bounded(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "\n[Cut.]"


def _first(items: Any, count: int) -> Iterator[Any]:
    for number, each in enumerate(items):
        if number == count:
            return
        yield each

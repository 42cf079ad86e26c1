"""Writes changes as a patch that `git apply` takes."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from coderoom.sandbox.overlay.myers import Block, Effort, same_lines

_CONTEXT = 3
_STEPS_OF_A_FILE = 3_000_000
_NO_NEWLINE = "\\ No newline at end of file\n"
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r"}
_ESCAPES |= {'"': '\\"', "\\": "\\\\"}


@dataclass(frozen=True)
class Patch:
    """Changes as a unified diff, which `git apply` takes; `str` gives its text.

    Attributes:
        text: The diff; contents that are not UTF-8 text are binary patches in it.
        left_out: What is not in it, and why.
        state: What `commit` knows the files by, so that it writes none that was changed after this.
        parts: The part of the diff for each path.
    """

    text: str
    left_out: tuple[str, ...] = ()
    state: str = field(default="", repr=False, compare=False)
    parts: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Side:
    """One side of a change: what git knows of a file or a link.

    Attributes:
        path: Its path.
        mode: `100644`, `100755` or `120000`.
        content: Its content, or the target of a link.
    """

    path: str
    mode: str
    content: bytes


def file_patch(old: Side | None, new: Side | None, effort: Effort) -> str:
    """The part of a patch for one path: a file or link that was made, changed, removed, or moved as it was."""
    if old is not None and new is not None and (old.mode == "120000") != (new.mode == "120000"):
        return file_patch(old, None, effort) + file_patch(None, new, effort)
    one = old or new
    assert one is not None
    before, after = old or one, new or one
    lines = [f"diff --git {quoted('a/' + before.path)} {quoted('b/' + after.path)}\n"]
    if old is None:
        lines.append(f"new file mode {after.mode}\n")
    elif new is None:
        lines.append(f"deleted file mode {before.mode}\n")
    elif old.mode != new.mode:
        lines += [f"old mode {old.mode}\n", f"new mode {new.mode}\n"]
    if before.path != after.path:
        lines += ["similarity index 100%\n", f"rename from {quoted(before.path)}\n"]
        lines.append(f"rename to {quoted(after.path)}\n")
    a, b = b"" if old is None else old.content, b"" if new is None else new.content
    if a != b or old is None or new is None:
        shown = f" {after.mode}" if old is not None and new is not None and old.mode == new.mode else ""
        lines.append(f"index {_blob(old)}..{_blob(new)}{shown}\n")
    if a != b:
        if _is_text(a) and _is_text(b):
            lines.append("--- /dev/null\n" if old is None else f"--- {_headed('a/' + before.path)}\n")
            lines.append("+++ /dev/null\n" if new is None else f"+++ {_headed('b/' + after.path)}\n")
            lines += hunks(a, b, effort)
        else:
            lines.append(_binary(b))
    return "".join(lines)


def hunks(old: bytes, new: bytes, effort: Effort) -> Iterator[str]:
    """The hunks of a unified diff."""
    a, b = _lines(old), _lines(new)
    own = Effort(min(effort.left, _STEPS_OF_A_FILE))
    steps = own.left
    blocks = same_lines(a, b, own)
    effort.left -= steps - own.left
    for group in _groups(blocks):
        (i1, i2, j1, j2), inner = _span(group)
        yield f"@@ -{_range(i1, i2)} +{_range(j1, j2)} @@\n"
        i, j = i1, j1
        for from_i, from_j, count in [*inner, (i2, j2, 0)]:
            yield from (_line("-", line) for line in a[i:from_i])
            yield from (_line("+", line) for line in b[j:from_j])
            yield from (_line(" ", line) for line in a[from_i : from_i + count])
            i, j = from_i + count, from_j + count


def _groups(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """The blocks around each group of changes that is a hunk: with those inside, shortened at its ends to the context.

    Each begins and ends with a block, which may be empty.
    """
    first = blocks[0]
    group: list[Block] = []
    if first[:2] != (0, 0):
        group = [(0, 0, 0)]
    for i, j, count in blocks:
        last = (i, j, count) == blocks[-1]
        if not group:
            group = [_tail((i, j, count))]
        elif count > 2 * _CONTEXT and not last:
            yield [*group, (i, j, _CONTEXT)]
            group = [_tail((i, j, count))]
        else:
            group.append((i, j, count))
    end = blocks[-1]
    # The block before the empty one at the ends is the end of the last hunk, if it reaches them.
    if len(group) > 1:
        last_i, last_j, count = group[-2]
        if (last_i + count, last_j + count) == end[:2]:
            group = [*group[:-2], (last_i, last_j, min(count, _CONTEXT))]
            if len(group) == 1:  # Nothing has changed after it.
                return
        yield group


def _tail(block: Block) -> Block:
    skipped = max(block[2] - _CONTEXT, 0)
    return block[0] + skipped, block[1] + skipped, block[2] - skipped


def _span(group: Sequence[Block]) -> tuple[tuple[int, int, int, int], Sequence[Block]]:
    first, last = group[0], group[-1]
    return (first[0], last[0] + last[2], first[1], last[1] + last[2]), group


def _range(begin: int, end: int) -> str:
    count = end - begin
    start = begin + 1 if count else begin
    return str(start) if count == 1 else f"{start},{count}"


def _line(sign: str, line: bytes) -> str:
    text = line.decode()
    return f"{sign}{text}" if text.endswith("\n") else f"{sign}{text}\n{_NO_NEWLINE}"


def _lines(content: bytes) -> list[bytes]:
    lines = content.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _is_text(content: bytes) -> bool:
    if b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _blob(side: Side | None) -> str:
    if side is None:
        return "0" * 40
    head = f"blob {len(side.content)}\0".encode()
    return hashlib.sha1(head + side.content, usedforsecurity=False).hexdigest()


def _binary(content: bytes) -> str:
    data = zlib.compress(content)
    lines = [f"GIT binary patch\nliteral {len(content)}\n"]
    for begin in range(0, len(data), 52):
        part = data[begin : begin + 52]
        size = chr(ord("A") + len(part) - 1) if len(part) <= 26 else chr(ord("a") + len(part) - 27)
        lines.append(f"{size}{base64.b85encode(part, pad=True).decode()}\n")
    return "".join([*lines, "\n"])


def _headed(path: str) -> str:
    shown = quoted(path)
    return f"{shown}\t" if " " in path and shown == path else shown


def quoted(path: str) -> str:
    """A path as git writes it: quoted if it has characters that could be mistaken or are not printable."""
    if path.isprintable() and not set(path) & set(_ESCAPES):
        return path
    parts = []
    for character in path:
        if character in _ESCAPES:
            parts.append(_ESCAPES[character])
        elif character.isprintable():
            parts.append(character)
        else:
            parts += [f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape")]
    return '"' + "".join(parts) + '"'

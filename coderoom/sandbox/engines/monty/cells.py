"""Cells of the engine `monty`: rewriting them for pydantic-monty, and explaining its errors to their author."""

from __future__ import annotations

import ast
import builtins
import contextlib
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from coderoom.outcome import Outcome
from coderoom.sandbox.config import MIB, Limits
from coderoom.sandbox.guest.cells import dedented
from coderoom.sandbox.guest.decoding import Decoder
from coderoom.sandbox.guest.encoding import ValueEncoder
from coderoom.sandbox.guest.tables import describe_list
from coderoom.sandbox.result import CodeError

if TYPE_CHECKING:
    import pydantic_monty

    MontyFailure = pydantic_monty.MontyRuntimeError | pydantic_monty.MontySyntaxError  # What the code is to blame for.

MODULES = (
    *("asyncio", "base64", "binascii", "bisect", "collections", "copy", "csv", "dataclasses", "datetime", "decimal"),
    *("functools", "hashlib", "itertools", "json", "math", "os", "pathlib", "posixpath", "random", "re", "sys", "time"),
    *("tomllib", "typing", "unicodedata"),
)
ELSE = "engine='cpython' runs all of Python"

_REPR = 20_000
_PARSED = 100_000  # Of longer code, only the last lines are parsed.
_PREFIX = "__coderoom_show__(("
_FILE = "<python-input-"
_OURS = f"{_FILE}0>"  # The prelude is the first code that a fresh state runs.

# It turns a value into text inside the interpreter. Returning a value copies it three times, which a large one does not
# survive, and of an instance only the class's name would come out. So only a small one of types that JSON lacks is
# returned. Builtins are defaults: code may reuse their names.
_PRELUDE = """
import json as __coderoom_json

def __coderoom_plain__(value, room, *, scalars=(bool, int, float), string=str, sequence=list, mapping=dict,
                       others=(tuple, set, frozenset), octets=bytes, type=type, len=len,
                       names=("complex", "date", "datetime", "Decimal", "PosixPath", "time", "timedelta")):
    level, deep, plain = [value], 0, "data"
    while level and deep < 200:
        below = []
        deep += 1
        for item in level:
            kind = type(item)
            room -= 1
            if kind is string:
                room -= len(item)
            elif kind is sequence or kind in others:
                plain = plain if kind is sequence else "typed"
                room -= len(item)
                below.extend(item if room > 0 else ())
            elif kind is mapping:
                for key in item:
                    if type(key) is string:
                        room -= len(key) + 1
                    else:
                        plain = "typed"
                        below.append(key)
                below.extend(item.values() if room > 0 else ())
            elif kind is octets or (item is not None and kind not in scalars and kind.__name__ in names):
                plain = "typed"
                room -= len(item) if kind is octets else 0
            elif item is not None and kind not in scalars:
                return "", room
            if room < 0:
                return "", room
        level = below
    return "" if level else plain, room

def __coderoom_brief__(value, most, *, plain=__coderoom_plain__, string=str, octets=bytes, sequence=list, pair=tuple,
                       mapping=dict, type=type, repr=repr, len=len):
    kind = type(value)
    if kind is string or kind is octets:
        return repr(value[:most]) + f"... ({len(value):,} {'characters' if kind is string else 'bytes'})"
    text = "[" if kind is sequence else "(" if kind is pair else "{"
    for item in value:
        if len(text) > most:
            break
        if kind is mapping:
            text += repr(item) + ": "
            item = value[item]
        text += (repr(item) if plain(item, 2000)[0] else "...") + ", "
    return f"{text[:most]}... ({len(value):,} items)"

def __coderoom_show__(value, other=None, *, limit=LIMIT, most=REPR, plain=__coderoom_plain__, brief=__coderoom_brief__,
                      repr=repr, len=len, type=type, dumps=__coderoom_json.dumps, Error=Exception):
    if value is None and other is not None:
        try:
            value = other()
        except Error:
            pass
    if value is None:
        return None
    data, room = plain(value, limit)
    if room < 0:
        return ("large", brief(value, most))
    try:
        shown = repr(value)
        if len(shown) > most:
            shown = f"{shown[:most]}... ({len(shown):,} characters)"
    except Error as error:
        shown = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    if data == "typed":
        return ("typed", shown, value)
    if data:
        try:
            text = dumps(value)
            return ("data", shown, text) if len(text) <= limit else ("large", shown)
        except Error:
            pass
    return ("repr", shown)
"""

# Special methods that pydantic-monty does not call, of those whose absence is an error. Not of those: `__bool__`,
# `__format__`, `__new__`, `__setattr__`.
_UNCALLED = re.compile(
    r"\bdef (__(?:await|bytes|class_getitem|g[et]|getattr|getattribute|l[et]|len|reversed|"
    r"i(?:add|and|floordiv|lshift|matmul|mod|mul|or|pow|rshift|sub|truediv|xor))__)\("
)
# What pydantic-monty says in words only, and others must know: the kinds of errors that say it (none: any), and how.
MARKERS: Final = {
    "memory": ("MemoryError", re.compile(r"\A(?:memory limit exceeded: |the worker exceeded its memory limit)")),
    "cpu": ("TimeoutError", re.compile(r"\Afeed time limit exceeded")),
    "disk": ("OSError", re.compile(r"\Adisk write limit")),
    "syntax": (
        "NotImplementedError",
        re.compile(r"\AThe monty syntax parser does not yet support (?:the )?(.+)", re.DOTALL),
    ),
    "module": ("ModuleNotFoundError", re.compile(r"\ANo module named '([\w.]+)'")),
    "name": ("NameError", re.compile(r"\Aname '(\w+)' is not defined")),
    "attribute": ("AttributeError", re.compile(r"\Amodule '([\w.]+)' has no attribute")),
    "import": ("ImportError", re.compile(r"\Acannot import name '\w+' from '([\w.]+)'")),
    "special": ("AttributeError", re.compile(r"has no attribute '(__\w+__)'")),
    "stream": ("AttributeError", re.compile(r"'(_io\.\w+)' object has no attribute")),
    "not yet": ("", re.compile(r"not yet supported")),
    "unsupported": ("", re.compile(r"are not supported$")),
    "object": ("", re.compile(r"cannot create 'object' instances")),
    "bug": ("", re.compile(r"Internal error in monty")),
    "print": ("", re.compile(r"must be sys\.std")),
}


def read_marker(kind: str, message: str) -> tuple[str, str]:
    """What an error means, by the first of the markers that is in it, and what it names; empty if there is none."""
    for meaning, (marked, pattern) in MARKERS.items():
        if marked in ("", kind) and (match := pattern.search(message)):
            return meaning, match[1] if pattern.groups else ""
    return "", ""


def prelude(limits: Limits) -> str:
    """The code that a fresh state runs before any cell."""
    return _PRELUDE.replace("LIMIT", str(limits.value_bytes)).replace("REPR", str(_REPR))


@dataclass(frozen=True)
class MontyCell:
    """A cell: the author's code, and the `source` that runs, in which the last expression becomes the value.

    `line` and `column` are where that expression begins, counted from 1 and from 0; 0 if there is none.
    """

    code: str
    source: str
    line: int = 0
    column: int = 0

    @classmethod
    def read(cls, code: str, result_name: str | None) -> Self:
        """Find the last expression; `result_name` is a variable whose value counts where the expression has none."""
        code = dedented(code)
        suffix = "))" if result_name is None else f"), lambda: {result_name})"
        found = _last_expression(code)
        if found is None:
            return cls(code, code if result_name is None else f"{code}\n{_PREFIX}None{suffix}")
        begin, end, line = found
        source = "".join((code[:begin], _PREFIX, code[begin:end], suffix, code[end:]))
        return cls(code, source, line, begin - max(code.rfind("\n", 0, begin), code.rfind("\r", 0, begin)) - 1)

    def failed(self, error: MontyFailure, has_files: bool) -> dict[str, Any]:
        """The facts of a result, from an error that leaves the state as it is."""
        kind, message = _kind(error), error.display("msg")
        if kind == "SystemExit":
            if re.fullmatch(r"-?\d{1,9}", message):
                code, text = int(message) & 0xFF, ""
            else:
                code, text = (1, f"{message}\n") if message else (0, "")
            if code == 0:
                return {"outcome": Outcome.OK, "exit_code": 0}
            exited = CodeError("Exit", f"exit code {code}")
            return {"outcome": Outcome.ERROR, "exit_code": code, "error": exited, "stderr": text}
        message = _with_hint(kind, message, self.code, has_files)
        text, line = self._explain(error, message)
        name = kind.rpartition(".")[2]
        facts: dict[str, Any] = {"outcome": Outcome.ERROR, "exit_code": 1, "stderr": text}
        if name == "MemoryError":
            facts |= {"outcome": Outcome.MEMORY, "exit_code": 137, "limit": "memory"}
        elif read_marker(name, message)[0] == "disk":
            facts["limit"] = "disk"
        return facts | {"error": CodeError(name, message, text, line)}

    def outgrew(self, error: MontyFailure, limits: Limits, rest: str) -> dict[str, Any]:
        """The facts of a result, from an error that says that there was no memory."""
        size = limits.memory_bytes // MIB
        message = f"The code wanted more memory than the {size:,} MiB that it may have. {rest}".rstrip()
        text, line = self._explain(error, message)
        facts: dict[str, Any] = {"outcome": Outcome.MEMORY, "exit_code": 137, "limit": "memory"}
        if line is None:
            return facts | {"error": CodeError("Limit", message)}
        return facts | {"error": CodeError("MemoryError", message, text, line), "stderr": text}

    def _explain(self, error: MontyFailure, message: str) -> tuple[str, int | None]:
        """The traceback of the author's code, and the line of this cell."""
        frames = [frame for frame in error.traceback() if frame.filename != _OURS]
        kind = _kind(error)
        ran = any(frame.function_name for frame in frames)
        own = frames[0].filename if frames else ""
        lines = ["Traceback (most recent call last):"] if ran else []
        for text, same in groupby("\n".join(self._place(frame, frame.filename == own, ran)) for frame in frames):
            count = len(list(same))
            lines += [text] * min(count, 3)
            if count > 3:
                lines.append(f"  [Previous line repeated {count - 3} more times]")
        lines.append(f"{kind}: {message}" if message else kind)
        return "\n".join(lines) + "\n", frames[0].line if frames else None

    def _place(self, frame: pydantic_monty.Frame, own: bool, ran: bool) -> Iterator[str]:
        name = frame.filename.replace(_FILE, "<cell ")
        where = f", in {frame.function_name}" if frame.function_name else ""
        yield f'  File "{name}", line {frame.line}{where}'
        source, begin, end = frame.source_line or "", frame.column - 1, frame.end_column - 1
        written = re.split(r"\r\n|\r|\n", self.code)
        if own and frame.line <= len(written):
            source = written[frame.line - 1]
        if own and frame.line == self.line:
            begin, end = (at if at <= self.column else max(at - len(_PREFIX), self.column) for at in (begin, end))
        shown = source.strip()
        if not shown:
            return
        yield f"    {shown}"
        indent = len(source) - len(source.lstrip())
        begin, end = (
            max(begin - indent, 0),
            min(end - indent, len(shown)) if frame.end_line == frame.line else len(shown),
        )
        if end > begin and end - begin < len(shown):
            yield "    " + " " * begin + ("^" if not ran else "~") * (end - begin)


def returned(shown: Any, most: int, describes: bool = False) -> dict[str, Any]:
    """The facts of the result of a cell that ran to its end, from what the prelude's function returned.

    Code may have replaced that function. `most` is the most bytes of a value as JSON; `describes`: whether a list of
    rows is described.
    """
    facts: dict[str, Any] = {"outcome": Outcome.OK, "exit_code": 0}
    if not isinstance(shown, tuple) or len(shown) < 2 or not all(isinstance(part, str) for part in shown[:2]):
        return facts
    facts |= {"value": shown[1], "value_repr": shown[1]}
    if shown[0] == "data" and len(shown) == 3 and isinstance(shown[2], str):
        with contextlib.suppress(ValueError, RecursionError):  # An integer may have more digits than can be read here.
            facts |= {"value": json.loads(shown[2]), "value_is_data": True}
    if shown[0] == "typed" and len(shown) == 3:
        with contextlib.suppress(ValueError):
            tagged = ValueEncoder(most, most).encode(shown[2])
            if len(json.dumps(tagged)) <= most:
                facts |= {"value": Decoder().read(tagged), "value_is_data": True}
            else:
                facts["limit"] = "value"
    if shown[0] == "large":
        facts["limit"] = "value"
    if describes:
        facts["value_repr"] = describe_list(facts["value"], shown[1])
    return facts


def trip_of(error: MontyFailure) -> Literal["cpu", "memory"] | None:
    """The limit that interrupted the code; `None` if it failed in an ordinary way."""
    meaning, _ = read_marker(_kind(error), error.display("msg"))
    if meaning == "memory":
        return "memory"
    # An error that the code itself raises has a traceback.
    return "cpu" if meaning == "cpu" and not error.traceback() else None


def _last_expression(code: str) -> tuple[int, int, int] | None:
    """Where the last expression begins and ends, if the code ends with one, and its line."""
    start = 0
    try:
        tree = _parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The syntax may be newer than this interpreter: the last lines may still parse.
        start = _last_unindented(code)
        try:
            tree = _parse(code[start:])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or last.end_lineno is None or last.end_col_offset is None:
        return None
    starts = [start, *(start + match.end() for match in re.finditer(r"\r\n|\r|\n", code[start:]))]
    begin = _offset(code, starts[last.lineno - 1], last.col_offset)
    end = _offset(code, starts[last.end_lineno - 1], last.end_col_offset)
    return begin, end, len(re.findall(r"\r\n|\r|\n", code[:begin])) + 1


def _parse(code: str) -> ast.Module:
    if len(code) > _PARSED:
        raise ValueError("this would take too long")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def _last_unindented(code: str) -> int:
    """The start of the last line that may begin a statement."""
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", code))]
    for start in reversed(starts):
        if code[start : start + 1].strip(" \t\r\n)]}") and not code[:start].rstrip("\r\n").endswith("\\"):
            return start
    return 0


def _offset(code: str, line_start: int, column: int) -> int:
    """From a column in bytes to an offset in characters."""
    line = code[line_start : line_start + column]
    return line_start + (column if line.isascii() else len(line.encode()[:column].decode()))


def _kind(error: MontyFailure) -> str:
    return error.display("type-msg").partition(":")[0]


def _with_hint(kind: str, message: str, code: str, has_files: bool) -> str:
    """The message, and what the engine lacks if the code failed for that."""
    if kind == "PermissionError" and not has_files:
        return f"{message}. There are no files here: give the sandbox a workspace."
    meaning, name = read_marker(kind, message)
    match meaning:
        case "syntax":
            lacks = f"does not know {name}"
        case "module":
            lacks = f"has no {name!r} but only these modules: {', '.join(MODULES)}"
        case "name" if hasattr(builtins, name):
            lacks = f"has no {name!r}"
        case "attribute" | "import":
            lacks = f"has only a part of {name!r}"
        case "special":
            lacks = f"has no {name!r} there"
        case "stream":
            lacks = f"has only a part of {name!r}: use print() and open()"
        case "not yet" | "unsupported" | "object" | "bug" | "print":
            lacks = "does not do this"
        case _ if kind in ("AttributeError", "TypeError") and (uncalled := _UNCALLED.search(code)):
            lacks = f"may be at fault: it does not call {uncalled[1]!r}"
        case _:
            return message
    hint = f"The engine 'monty' {lacks}. Write it another way; {ELSE}."
    return hint if meaning == "syntax" else f"{message}. {hint}"

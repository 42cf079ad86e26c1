"""Reads YAML 1.2 and JSON as plain data with positions, and shows locations in it. Used by all of `coderoom.configs`.

ruamel.yaml parses; this module limits size and types.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from coderoom.errors import ConfigError, Problem

MAX_DEPTH = 100
"""The depth of a team file. A team of teams of teams is about 30 deep."""
MAX_NODES = 20_000
"""The number of keys and values in a team file; those that aliases repeat count each time."""

_CORE: dict[str, Any] = {"null": (type(None),), "bool": (bool,), "int": (int,), "float": (int, float)}
_TOO_DEEP = f"the file nests deeper than {MAX_DEPTH} levels"
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENDLESS_TAG = re.compile(r"(?:^|[\s\[{,])!\S{100000}")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_INTEGER = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

# What ruamel's messages, or what they begin with, mean to the author of a team file.
_SENTENCES = {
    "mapping values are not allowed here": "there is a ': ' where no value can begin; quote the text, or indent it as "
    "the lines above",
    "could not find expected ':'": "a key stands here without its ':'",
    "found unexpected end of stream": "a quote that is opened here is never closed",
    "sequence entries are not allowed here": "a '- ' cannot stand here; begin the list on a line of its own",
    "mapping keys are not allowed here": "a key cannot begin here",
    "found character '\\t'": "a tab cannot indent; use spaces",
    "found character": "no value can begin with this; put it in quotes",
    "found undefined tag handle": "tags are not allowed; a team file is plain data",
    "while parsing a flow sequence": "a '[' that is opened here is not closed where it should be",
    "while parsing a flow mapping": "a '{' that is opened here is not closed where it should be",
    "while parsing a block mapping": "the indentation, or what is here, does not fit the mapping above it",
    "while parsing a block collection": "the indentation, or what is here, does not fit the list above it",
}


@lru_cache(maxsize=4)
def _compose(text: str) -> Node | None:
    """Parse YAML; a batch loads the same team many times."""
    root: Node | None = YAML(typ="safe", pure=True).compose(text)
    return root


class Reader:
    """Reads one document; `problems` are the mistakes that did not stop the reading."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.marks: dict[Location, Mark] = {}
        self._count = 0
        self._open: list[Node] = []

    def read_json(self, text: str) -> Any:
        """Read JSON: `json` validates it, and then it is read as YAML, for the positions."""
        try:
            json.loads(text, parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            mark = Mark(error.lineno, error.colno)
            self.fail(mark, f"this is not JSON: {error.msg[:1].lower() + error.msg[1:]} ({_at(mark)})")
        except RecursionError:
            self.fail(Mark(1, 1), _TOO_DEEP)
        except ValueError as error:  # A constant that JSON does not have, or thousands of digits.
            self.fail(Mark(1, 1), f"this is not JSON: {error}")
        # JSON allows tabs between values and any character in a text, and YAML does not.
        return self.read_yaml(re.sub("[^\n -~]", lambda odd: json.dumps(odd[0])[1:-1], re.sub("[\t\r]", " ", text)))

    def read_yaml(self, text: str) -> Any:
        """Read YAML."""
        if found := _UNPRINTABLE.search(text):
            mark = _mark_at(text, found.start())
            self.fail(mark, f"YAML does not allow the control character U+{ord(found[0]):04X} ({_at(mark)})")
        if found := _ENDLESS_TAG.search(text):  # The scanner would need minutes for these.
            self.fail(_mark_at(text, found.start()), "a word that begins with '!' is more than 100,000 characters long")
        try:
            root = _compose(text)
        except MarkedYAMLError as error:
            problem, context = str(error.problem or ""), str(error.context or "")
            known = (
                text for start, text in _SENTENCES.items() if problem.startswith(start) or context.startswith(start)
            )
            sentence = next(known, " ".join(f"{context}, {problem}".strip(", ").split()))
            # Ruamel detects some mistakes far behind the position that the user has to fix.
            behind = "opened here" in sentence or "stands here" in sentence
            mark = _mark(
                error.context_mark if behind and error.context_mark else error.problem_mark or error.context_mark
            )
            if problem.startswith("found character"):
                sentence = sentence.replace("this", repr(problem.split("'")[1]))
            self.fail(mark, f"this is not YAML: {sentence} ({_at(mark)})")
        except RecursionError:
            self.fail(Mark(1, 1), _TOO_DEEP)
        except Exception as error:  # Damaged input makes ruamel.yaml raise other errors too.
            self.fail(Mark(1, 1), f"this is not YAML: {' '.join(str(error).split()) or type(error).__name__}")
        if root is None:
            return None
        self.marks[()] = _mark(root.start_mark)
        return self._value(root, ())

    def problem(self, mark: Mark, message: str, path: Location = ()) -> None:
        """Report a mistake that does not stop the reading."""
        self.problems.append(Problem(message, self.file, mark.line, show(path)))

    def fail(self, mark: Mark, message: str, path: Location = ()) -> NoReturn:
        """Report a mistake, and stop the reading."""
        self.problem(mark, message, path)
        raise ConfigError(self.problems) from None

    def _value(self, node: Node, path: Location) -> Any:
        mark = _mark(node.start_mark)
        self._count += 1
        if self._count > MAX_NODES:
            self.fail(
                mark, f"the file holds more than {MAX_NODES:,} keys and values, with its aliases written out", path
            )
        if node in self._open:
            alias = show_key(f"*{node.anchor}")
            self.fail(mark, f"the alias {alias} stands inside its own anchor, so it would never end", path)
        if len(self._open) >= MAX_DEPTH:
            self.fail(mark, _TOO_DEEP, path)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        self._check_tag(node, path)
        self._open.append(node)
        value: Any = self._list(node, path) if isinstance(node, SequenceNode) else self._mapping(node, path)
        self._open.pop()
        return value

    def _list(self, node: SequenceNode, path: Location) -> list[Any]:
        self.marks |= {(*path, index): _mark(item.start_mark) for index, item in enumerate(node.value)}
        return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: Node, path: Location) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[Node] = []
        for key, value in node.value:
            mark = _mark(key.start_mark)
            if not isinstance(key, ScalarNode):
                self.problem(mark, "a key has to be a text, and this one is a list or a mapping", path)
            elif key.tag == "tag:yaml.org,2002:merge":
                merged += value.value if isinstance(value, SequenceNode) else [value]
            elif key.value in lines:
                first = lines[key.value]
                self.problem(mark, f"the key {show_key(key.value)} is here twice; the first is on line {first}", path)
            else:
                lines[key.value] = mark.line
                name = self._sound(key.value, mark, path)
                self.marks[(*path, name)] = mark
                data[name] = self._value(value, (*path, name))
        for other in merged:
            if isinstance(other, MappingNode):
                before = dict(self.marks)
                data = self._value(other, path) | data
                self.marks |= before
            else:
                self.problem(_mark(other.start_mark), "'<<' takes a mapping, or a list of mappings, to merge in", path)
        return data

    def _scalar(self, node: ScalarNode, path: Location) -> Any:
        kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
        mark = _mark(node.start_mark)
        if kind in _CORE:
            value = core_value(node.value)
            if isinstance(value, _CORE[kind]) or (node.style is None and not isinstance(value, str)):
                return value
            self.problem(mark, f"the tag {'!!' + kind!r} does not fit this value", path)
        elif kind not in {"str", "timestamp", "value", "merge", "!"}:
            self._check_tag(node, path)
        return self._sound(node.value, mark, path)

    def _check_tag(self, node: Node, path: Location) -> None:
        tag = str(node.tag).replace("tag:yaml.org,2002:", "!!", 1)
        if tag not in {"!!map", "!!seq"}:
            message = f"the tag {tag[:80]!r} is not allowed; a team file is plain data"
            self.problem(_mark(node.start_mark), message, path)

    def _sound(self, value: str, mark: Mark, path: Location) -> str:
        try:
            # Escapes such as "\ud83d\ude00" come as two halves of one character.
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self.problem(mark, r"the text holds half of a character, a lone '\ud8..' or '\udc..' escape", path)
            return value.encode("utf-8", "replace").decode("utf-8")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word!r} is not a JSON value")


def core_value(text: str) -> Any:
    """The value of a plain scalar in YAML 1.2's core schema, where `yes` and dates are texts."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _OTHER_INTEGER.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _INFINITE.fullmatch(text):
            return float(text.replace(".", ""))
    except ValueError:  # Thousands of digits.
        return text
    return text


def _mark(mark: Any) -> Mark:
    return Mark(1, 1) if mark is None else Mark(mark.line + 1, mark.column + 1)


def _mark_at(text: str, offset: int) -> Mark:
    return Mark(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


def _at(mark: Mark) -> str:
    return f"line {mark.line}, column {mark.column}"


# --- Locations in a document, and how messages show them ---

Location = tuple[str | int, ...]
"""The keys and indices that lead from the top of a document to a value."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")
_SHOWN_LENGTH = 80


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A position in the text of a file; lines and columns count from 1."""

    line: int
    column: int


def value_at(data: Any, path: Location) -> Any:
    """The value at a location; `None` if there is none."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def walk(data: Any, path: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield each value in a document, with its location."""
    yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from walk(value, (*path, key))


def show(path: Location) -> str:
    """Format a location: `config.participants[0].config.name`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{show_key(step)}]"
    return text


def show_key(text: str) -> str:
    """Quote a text on one line, and shorten a long one."""
    return repr(text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 3] + "...")


def in_a_line(error: BaseException) -> str:
    """An exception's type and message without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())


_NEAR = 0.59
"""Such that `system_prompt` is near `system_message`."""


def nearest(name: str, names: Iterable[str], count: int = 1) -> list[str]:
    """The known names that `name` may be a misspelling of, nearest first."""
    known = list(names)
    close = difflib.get_close_matches(name, known, n=count, cutoff=_NEAR)
    if close:
        return close
    folded = {known_name.casefold(): known_name for known_name in known}
    return [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=count, cutoff=_NEAR)]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?` if a known name is near, otherwise nothing."""
    close = nearest(name, names)
    return f"; did you mean {close[0]!r}?" if close else ""

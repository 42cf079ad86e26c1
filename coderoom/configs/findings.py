"""The mistakes that a check of a file finds, and pydantic's errors in plain words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coderoom.configs.reading import Document
from coderoom.configs.variables import References, is_secret_key
from coderoom.configs.yaml import Location, did_you_mean, nearest, show_key
from coderoom.errors import ConfigError, MissingDependencyError, Problem


@dataclass(slots=True)
class Checked:
    """A file and what its check finds; the check adds to it until it calls `finish`.

    Attributes:
        data: The cleaned copy: references resolved, `x-` keys dropped, missing parts of envelopes added.
        components: The class of each component, innermost first.
        warnings: What is allowed but probably not meant.
        replaced: The locations of model clients that a placeholder replaces.
        elsewhere: The texts of models of other services, which are `replaced` too.
        as_written: The locations of components whose data differs from the file, but not in a dump.
        dropped: The locations of keys that only carry anchors.
        meant: For each mapping, the keys that its unknown keys may have meant.
        unresolved: The locations of references without a value; nothing else is reported about these.
    """

    document: Document
    references: References
    data: Any = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    components: dict[Location, type] = field(default_factory=dict)
    replaced: set[Location] = field(default_factory=set)
    elsewhere: dict[Location, str] = field(default_factory=dict)
    as_written: set[Location] = field(default_factory=set)
    dropped: set[Location] = field(default_factory=set)
    meant: dict[Location, set[str]] = field(default_factory=dict)
    unresolved: set[Location] = field(init=False)
    _found: list[tuple[Location, str]] = field(default_factory=list)
    _warned: list[tuple[Location, str]] = field(default_factory=list)
    _not_installed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.unresolved = {path for path, reference in self.references.items() if reference.problems}

    def problem(self, path: Location, message: str, *, not_installed: bool = False) -> None:
        """Report a mistake; `not_installed` means that nothing is wrong but that a package is missing."""
        self._found.append((path, message))
        if not_installed:
            self._not_installed.add(message)

    def warn(self, path: Location, message: str) -> None:
        """Report something that is allowed but probably not meant."""
        self._warned.append((path, message))

    def unknown_key(self, path: Location, key: str, known: Collection[str], elsewhere: str = "") -> None:
        """Report a key that nothing reads."""
        close = nearest(key, known)
        hint = f"; did you mean {close[0]!r}?" if close else elsewhere
        self.meant.setdefault(path, set()).update(close)
        self.problem((*path, key), f"unknown key {show_key(key)}{hint}")

    def missing_key(self, path: Location, key: str) -> None:
        """Report a missing key, unless an unknown one was meant for it."""
        if key not in self.meant.get(path, ()):
            self.problem(path, f"the key {key!r} is missing")

    def finish(self, data: Any) -> Checked:
        """Set the cleaned copy, and sort the mistakes, without those in unused parts and without repetitions."""
        self.data = data
        unused = self.dropped | self.replaced
        self.references = References(
            {path: reference for path, reference in self.references.items() if not is_under(path, unused)}
        )
        found = [(path, message) for path, reference in self.references.items() for message in reference.problems]
        found += [(path, self.references.hide(message)) for path, message in self._found]
        found_here = self.document.distinct_problems(found)
        warned = [(path, self.references.hide(message)) for path, message in self._warned if not is_under(path, unused)]
        self.warnings = self.document.distinct_problems(warned)
        self.problems = sorted([*self.document.problems, *found_here], key=lambda problem: problem.line or 0)
        return self

    def refuse_mistakes(self) -> None:
        """Raise the mistakes of the file, if it has any."""
        if not self.problems:
            return
        if all(problem.message in self._not_installed for problem in self.problems):
            raise MissingDependencyError("\n".join(map(str, self.problems)))
        raise ConfigError(self.problems)


def is_under(path: Location, tops: Collection[Location]) -> bool:
    """Whether a path is one of those, or inside one of them."""
    return any(path[:length] in tops for length in range(len(path) + 1))


_EXPECTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen_set": "a list",
    "iterable": "a list",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
    "model_attributes": "a mapping",
    "dataclass": "a mapping",
    "typed_dict": "a mapping",
    "none_required": "nothing",
    "path": "a path",
    "bytes": "a text",
    "url": "a URL",
    "callable": "a function, which a file cannot hold",
    "is_instance_of": "an object, which a file cannot hold",
}
_ABSTRACT = {"Sequence": "a list", "Iterable": "a list", "Mapping": "a mapping"}
_LIMITS = {
    "greater_than": ("gt", "more than {}"),
    "greater_than_equal": ("ge", "at least {}"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "at most {}"),
    "too_short": ("min_length", "a list of at least {}"),
    "too_long": ("max_length", "a list of at most {}"),
    "string_too_short": ("min_length", "a text of at least {} characters"),
    "string_too_long": ("max_length", "a text of at most {} characters"),
}
_ENDINGS = ("_type", "_parsing", "_from_float", "_parsing_size", "_unicode")


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake that pydantic found, or a `missing` key; the path is relative to the validated value."""

    path: Location
    message: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class _Located:
    """One of pydantic's errors, its location split into a path of the data and a branch of a union."""

    path: Location
    error: Mapping[str, Any]
    union: Location | None
    branch: str

    @property
    def deep(self) -> bool:
        return self.error["type"] == "missing" or len(self.path) > len(self.union or ())


def explain(errors: Sequence[Mapping[str, Any]], data: Any, raw: Mapping[Location, str]) -> list[Mistake]:
    """Turn pydantic's errors into mistakes, one for each wrong value; the alternatives of a union are one mistake.

    `raw` has the texts that refer to variables, as the file has them; their values are not shown.
    """
    located = [_locate(error, data) for error in errors]
    mistakes = [_mistake(one.path, [one], raw) for one in located if one.union is None]
    for union in dict.fromkeys(one.union for one in located if one.union is not None):
        inside = [one for one in located if one.union == union]
        deep: dict[str, list[_Located]] = {}
        for one in inside:
            if one.deep:
                deep.setdefault(one.branch, []).append(one)
        if deep:
            # The intended branch is one that matched the outer value; of several, the one with the fewest errors.
            mistakes += [_mistake(one.path, [one], raw) for one in min(deep.values(), key=len)]
        else:
            mistakes.append(_mistake(union, inside, raw))
    return mistakes


def describe(value: Any) -> str:
    """Describe a value: `'many' (a string)`."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (a boolean)"
    if isinstance(value, int):
        return f"{value} (an integer)" if abs(value) < 10**20 else "a very long integer"
    if isinstance(value, float):
        return f"{value} (a number)"
    if isinstance(value, str):
        return f"{show_key(value)} (a string)"
    return "a list" if isinstance(value, (list, tuple)) else "a mapping"


def _locate(error: Mapping[str, Any], data: Any) -> _Located:
    path: list[str | int] = []
    union: Location | None = None
    branch = ""
    for step in error["loc"][:-1] if error["type"] == "missing" else error["loc"]:
        in_list = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if in_list or (isinstance(data, dict) and step in data):
            data = data[step]
            path.append(step)
        elif union is None:  # The name of a union's branch, or of a validator, which is not part of the file.
            union, branch = tuple(path), str(step)
    return _Located(tuple(path), error, union, branch)


def _mistake(path: Location, found: Sequence[_Located], raw: Mapping[Location, str]) -> Mistake:
    error = found[0].error
    if error["type"] == "missing":
        return Mistake(path, missing=str(error["loc"][-1]))
    if error["type"] == "extra_forbidden":
        return Mistake(path, f"unknown key {show_key(str(path[-1]))}")
    expected = list(dict.fromkeys(_expected(one.error) or "" for one in found))
    if not all(expected):
        text = " ".join(str(error["msg"]).split())
        return Mistake(path, text.removeprefix("Value error, ").removeprefix("Assertion failed, ") or error["type"])
    return Mistake(path, f"expected {' or '.join(expected)}, got {_got(path, error['input'], raw)}{_hint(error)}")


def _expected(error: Mapping[str, Any]) -> str | None:
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        limit = context.get(name)
        return words.format(f"{limit:g}" if isinstance(limit, float) else limit)
    if kind == "is_instance_of" and context.get("class") in _ABSTRACT:
        return _ABSTRACT[str(context["class"])]
    if kind in {"literal_error", "enum"}:
        return str(context.get("expected"))
    for ending in _ENDINGS:
        stem = kind.removesuffix(ending)
        if stem in _EXPECTED:
            return _EXPECTED[stem]
    return _EXPECTED.get(kind)


def _got(path: Location, value: Any, raw: Mapping[Location, str]) -> str:
    if path in raw:
        return f"the value of {show_key(raw[path])}"
    keys = [step for step in path if isinstance(step, str)]
    if keys and is_secret_key(keys[-1]) and isinstance(value, str):
        return "another text"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    return describe(value)


def _hint(error: Mapping[str, Any]) -> str:
    if error["type"] in {"literal_error", "enum"} and isinstance(error["input"], str):
        words = str(error.get("ctx", {}).get("expected", "")).split("'")[1::2]
        return did_you_mean(error["input"], words)
    return ""

"""What pydantic found, in words for the person who wrote the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coderoom.configs.locations import Location, did_you_mean, show_key
from coderoom.configs.variables import is_secret_key

__all__ = ["Mistake", "describe", "explain"]

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
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_ENDINGS = ("_type", "_parsing", "_from_float", "_parsing_size", "_unicode")


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake that pydantic found.

    Attributes:
        path: Where, from the validated value on.
        message: What is wrong.
        kind: Pydantic's name for it.
        key: The key that is missing or unknown, if it is that.
    """

    path: Location
    message: str
    kind: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class _Located:
    """One of pydantic's errors, its location split into a path of the data and the union branch it is from."""

    path: Location
    error: Mapping[str, Any]
    union: Location | None
    branch: str
    key: str | None

    @property
    def deep(self) -> bool:
        return self.key is not None or len(self.path) > len(self.union or ())


def explain(errors: Sequence[Mapping[str, Any]], data: Any, raw: Mapping[Location, str]) -> list[Mistake]:
    """Turn pydantic's errors into mistakes, one for each value that is wrong.

    Args:
        errors: What `ValidationError.errors()` gives.
        data: What was validated.
        raw: The texts that refer to variables, as the file has them; their values are not shown.

    Returns:
        The mistakes. The alternatives of a union are told together.
    """
    located = [_locate(error, data) for error in errors]
    mistakes = [_mistake(one.path, [one], raw) for one in located if one.union is None]
    unions = {one.union: None for one in located if one.union is not None}
    for union in unions:
        inside = [one for one in located if one.union == union]
        deep: dict[str, list[_Located]] = {}
        for one in inside:
            if one.deep:
                deep.setdefault(one.branch, []).append(one)
        if deep:
            # A branch that got inside the value is the one that was meant; the one with the fewest errors, most so.
            mistakes += [_mistake(one.path, [one], raw) for one in min(deep.values(), key=len)]
        else:
            mistakes.append(_mistake(union, inside, raw))
    return mistakes


def describe(value: Any) -> str:
    """Say what a value is: `'many' (a string)`."""
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
    current = data
    location = list(error["loc"])
    key = None
    if error["type"] in {"missing", "extra_forbidden"} and location:
        key = str(location.pop())
    for step in location:
        in_list = isinstance(current, list) and isinstance(step, int) and step < len(current)
        if in_list or (isinstance(current, dict) and step in current):
            current = current[step]
            path.append(step)
        elif union is None:  # the name of a union's branch, or of a validator: no part of the file
            union, branch = tuple(path), str(step)
    return _Located(tuple(path), error, union, branch, key)


def _mistake(path: Location, found: Sequence[_Located], raw: Mapping[Location, str]) -> Mistake:
    first = found[0]
    error = first.error
    if error["type"] == "missing":
        return Mistake(path, f"the key {first.key!r} is missing", "missing", first.key)
    if error["type"] == "extra_forbidden":
        return Mistake((*path, first.key or ""), f"unknown key {show_key(first.key or '')}", "extra", first.key)
    expected = list(dict.fromkeys(_expected(one.error) or "" for one in found))
    if not all(expected):
        return Mistake(path, _sentence(error), error["type"])
    message = f"expected {' or '.join(expected)}, got {_got(path, error['input'], raw)}"
    return Mistake(path, message + _hint(error), error["type"])


def _expected(error: Mapping[str, Any]) -> str | None:
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        limit = context.get(name)
        return f"{words} {limit:g}" if isinstance(limit, float) else f"{words} {limit}"
    if kind == "is_instance_of" and context.get("class") in _ABSTRACT:
        return _ABSTRACT[str(context["class"])]
    if kind in {"literal_error", "enum"}:
        return str(context.get("expected"))
    if kind in {"too_short", "too_long"}:
        words, name = ("at least", "min_length") if kind == "too_short" else ("at most", "max_length")
        return f"a list of {words} {context.get(name)}"
    if kind in {"string_too_short", "string_too_long"}:
        words, name = ("at least", "min_length") if kind == "string_too_short" else ("at most", "max_length")
        return f"a text of {words} {context.get(name)} characters"
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


def _sentence(error: Mapping[str, Any]) -> str:
    text = " ".join(str(error["msg"]).split())
    for start in ("Value error, ", "Assertion failed, "):
        text = text.removeprefix(start)
    return text or str(error["type"])

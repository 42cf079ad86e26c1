"""What a sandbox is asked for, checked before anything is made of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from coderoom.errors import RequestError
from coderoom.sandbox.limits import Limits
from coderoom.sandbox.walls import WALLS

__all__ = [
    "SourceModule",
    "a_count",
    "a_folder",
    "a_list",
    "a_mapping",
    "a_path",
    "a_switch",
    "a_wall",
    "check_code",
    "check_timeout",
    "limits_of",
    "make_workspace",
]

_SHOWN = 100


class SourceModule(NamedTuple):
    """A module for `Sandbox(preload=...)` that need not be installed inside; the worker makes it from its source.

    Args:
        name: Its full name. A package stands before its modules.
        source: Its source code.
    """

    name: str
    source: str


def a_wall(wall: str) -> str:
    """The name of a wall, or `auto`.

    Raises:
        RequestError: There is no such wall.
    """
    names = ("auto", *WALLS)
    if wall not in names:
        raise RequestError(f"There is no wall {wall!r}; there are {', '.join(map(repr, names))}.{_near(wall, names)}")
    return wall


def a_switch(name: str, value: bool) -> bool:
    """What is true or false.

    Raises:
        RequestError: It is something else.
    """
    if not isinstance(value, bool):
        raise RequestError(f"{name}={_shown(value)} is neither True nor False.")
    return value


def a_count(name: str, value: int) -> int:
    """A whole number above 0.

    Raises:
        RequestError: It is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"{name}={_shown(value)} must be a whole number and at least 1.")
    return value


def a_path(name: str, value: str | Path) -> Path:
    """A path.

    Raises:
        RequestError: It is something else.
    """
    if not isinstance(value, str | Path) or not str(value):
        raise RequestError(f"{name}={_shown(value)} is not the path of anything; give a text or a Path.")
    return Path(value)


def a_folder(name: str, value: str | Path) -> Path:
    """The absolute path of a folder that need not be there yet.

    Raises:
        RequestError: It is no path, or begins with the name of a user who is not there.
    """
    try:
        return a_path(name, value).expanduser().absolute()
    except RuntimeError as error:
        raise RequestError(f"{name}={_shown(value)} cannot be found: {error}") from error


def a_list(name: str, value: Sequence[Any], *kinds: type) -> list[Any]:
    """A list of such things.

    Raises:
        RequestError: It is something else.
    """
    listed = None if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable) else list(value)
    if listed is None or not all(isinstance(item, kinds) and str(item) for item in listed):
        raise RequestError(f"{name}={_shown(value)} is not a list of texts.")
    return listed


def a_mapping(name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """A mapping from names to values; `None` is an empty one.

    Raises:
        RequestError: It is something else.
    """
    if value is None:
        return {}
    # What it holds may be a secret.
    if not isinstance(value, Mapping):
        raise RequestError(f"{name}= is a {type(value).__name__}, and a mapping from names to values was expected.")
    return dict(value)


def limits_of(limits: Limits | Mapping[str, Any] | None) -> Limits:
    """The limits; a mapping says what differs from the usual ones.

    Raises:
        RequestError: There is no such limit, or a value is not allowed.
    """
    if isinstance(limits, Limits):
        return limits
    if limits is not None and not isinstance(limits, Mapping):
        raise RequestError(f"limits={_shown(limits)} is neither Limits(...) nor a mapping of what differs from them.")
    try:
        return Limits.model_validate(dict(limits or {}))
    except ValidationError as error:
        wrong = "; ".join(_wrong_limit(dict(each)) for each in error.errors(include_url=False))
        raise RequestError(f"limits: {wrong}.") from error


def check_code(code: str) -> None:
    """See to it that code is text.

    Raises:
        RequestError: It is something else.
    """
    if not isinstance(code, str):
        raise RequestError(f"code={_shown(code)} is a {type(code).__name__}, and text was expected.")


def check_timeout(timeout: float | None) -> None:
    """See to it that code gets some time.

    Raises:
        RequestError: It is no number of seconds.
    """
    if timeout is None:
        return
    number: Any = timeout
    if isinstance(number, bool) or not isinstance(number, Real) or not 0 < float(number) < float("inf"):
        raise RequestError(
            f"timeout={_shown(timeout)} is not a number of seconds above 0; without one code has limits.wall_seconds."
        )


def make_workspace(folder: Path) -> None:
    """Make a folder if it is not there.

    Raises:
        RequestError: There is something else, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise RequestError(f"The workspace {str(folder)!r} is a file; use a folder.") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RequestError(f"The workspace {str(folder)!r} is not there and cannot be made: {why}.") from error


def _wrong_limit(error: dict[str, Any]) -> str:
    name = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        return f"there is no {name!r} among {', '.join(Limits.model_fields)}{_near(name, Limits.model_fields)}"
    message = str(error["msg"])
    return f"{name}={_shown(error['input'])}: {message[:1].lower()}{message[1:]}"


def _near(name: object, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1) if isinstance(name, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

"""The configuration of a sandbox: the checked arguments of `Sandbox`, which its engine and its wall read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails

from coderoom.errors import RequestError
from coderoom.sandbox.environment import check_variables
from coderoom.sandbox.limits import Limits
from coderoom.sandbox.policy import POLICIES

__all__ = ["ENGINES", "WALL_NAMES", "SandboxConfig", "SourceModule", "shown"]

WALL_NAMES: Final = ("auto", "bubblewrap", "namespaces", "sandlock", "landlock", "docker", "none")
ENGINES: Final = ("cpython", "monty")

_CHOICES: Final[Mapping[str, Sequence[str]]] = {"wall": WALL_NAMES, "engine": ENGINES, "policy": POLICIES}
_WRONG: Final = {
    "preload": "is not a list of texts",
    "limits": "is neither Limits(...) nor a mapping of what differs from them",
    "workspace": "is not the path of a folder; give a text or a Path",
    "network": "is neither True nor False",
    "python": "is not the path of an interpreter; give a text or a Path",
    "readable": "is not a list of texts or Paths",
    "concurrency": "must be a whole number and at least 1",
}
_LONGEST_SHOWN: Final = 100


class SourceModule(NamedTuple):
    """A module for `Sandbox(preload=...)` that is not installed inside; the worker makes it from its source.

    Args:
        name: Its full name. A package must come before its modules.
        source: Its source code.
    """

    name: str
    source: str


def _choice(value: object, info: ValidationInfo) -> str:
    names = _CHOICES[str(info.field_name)]
    if not isinstance(value, str) or value not in names:
        listed = ", ".join(map(repr, names))
        raise RequestError(f"There is no {info.field_name} {value!r}; there are {listed}.{_near(value, names)}")
    return value


def _mapping(value: object, info: ValidationInfo) -> dict[Any, Any]:
    if not isinstance(value, Mapping):  # Its content may be secret.
        kind = type(value).__name__
        raise RequestError(f"{info.field_name}= is a {kind}, and a mapping from names to values was expected.")
    if info.field_name == "env":
        check_variables(value)
    return dict(value)


def _path(value: object) -> object:
    return Path(value) if isinstance(value, str) and value else value


def _folder(value: object) -> object:
    path = _path(value)
    try:
        return path.expanduser().absolute() if isinstance(path, Path) else path
    except RuntimeError as error:
        raise RequestError(f"workspace={shown(value)} cannot be found: {error}") from error


def _listed(value: object) -> object:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return tuple(value) if is_list else value  # type: ignore[arg-type]


def _paths(value: object) -> object:
    listed = _listed(value)
    return tuple(map(_path, listed)) if isinstance(listed, tuple) else listed


Name = Annotated[str, Field(min_length=1)]


class SandboxConfig(BaseModel):
    """The checked arguments of `Sandbox`.

    Attributes:
        wall: `auto` for the strongest wall that works on this machine, or `bubblewrap`, `namespaces`, `sandlock`,
            `landlock`, `docker`; `none` for no wall at all.
        engine: `cpython`, or `monty` for pydantic-monty's small Python, which needs no wall and starts at once
            (`pip install 'coderoom[monty]'`).
        preload: Modules that are imported once, for all runs and sessions; a `SourceModule` need not be installed.
        limits: `Limits`, or a mapping of those that differ from the defaults.
        workspace: A folder that the code may read and write, at `/workspace`; it is created if it does not exist.
            `None`: each run and each session has an empty one in memory.
        network: Whether the code may use the network.
        policy: `open`, or `restricted` for a small subset of Python. Code that breaks its rules is rejected with an
            explanation. A policy is early feedback, never security.
        env: Environment variables for the code, besides the few that programs need.
        python: The interpreter that runs the code; `None`: the one that `CODEROOM_PYTHON` names, else the one that
            runs this.
        readable: More folders that the code may read, at their own paths.
        concurrency: How many runs and sessions there may be at a time; others wait.
        options: Options of the chosen wall, for instance `image` for `docker`.

    Raises:
        RequestError: A value is wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    wall: Annotated[str, PlainValidator(_choice)] = "auto"
    engine: Annotated[Literal["cpython", "monty"], PlainValidator(_choice)] = "cpython"
    preload: Annotated[tuple[Name | SourceModule, ...], BeforeValidator(_listed)] = ()
    limits: Limits = Field(default_factory=Limits)
    workspace: Annotated[Path | None, BeforeValidator(_folder)] = None
    network: bool = False
    policy: Annotated[Literal["open", "restricted"], PlainValidator(_choice)] = "open"
    env: Annotated[Mapping[str, str], PlainValidator(_mapping)] = Field(default_factory=dict)
    python: Annotated[Path | None, BeforeValidator(_path)] = None
    readable: Annotated[tuple[Path, ...], BeforeValidator(_paths)] = ()
    concurrency: int = Field(default=256, ge=1)
    options: Annotated[Mapping[str, Any], PlainValidator(_mapping)] = Field(default_factory=dict)

    def __init__(self, **arguments: Any) -> None:
        try:
            super().__init__(**arguments)
        except ValidationError as error:
            raise RequestError(_explain(error.errors(include_url=False), arguments)) from error


def shown(value: object) -> str:
    """Return the `repr` of a value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _explain(errors: Sequence[ErrorDetails], arguments: Mapping[str, Any]) -> str:
    refused = errors[0].get("ctx", {}).get("error")
    if isinstance(refused, RequestError):
        return str(refused)
    name = str(errors[0]["loc"][0])
    if name not in SandboxConfig.model_fields:
        listed = ", ".join(SandboxConfig.model_fields)
        return f"There is no {name!r} among {listed}.{_near(name, SandboxConfig.model_fields)}"
    limits = [error for error in errors if error["loc"][0] == "limits" and len(error["loc"]) > 1]
    if name == "limits" and limits:
        wrong = "; ".join(map(_wrong_limit, limits))
        return f"limits: {wrong}" if wrong.endswith("?") else f"limits: {wrong}."
    return f"{name}={shown(arguments[name])} {_WRONG[name]}."


def _wrong_limit(error: ErrorDetails) -> str:
    name, message = str(error["loc"][1]), str(error["msg"])
    if error["type"] == "extra_forbidden":
        return f"there is no {name!r} among {', '.join(Limits.model_fields)}.{_near(name, Limits.model_fields)}"
    return f"{name}={shown(error['input'])}: {message[:1].lower()}{message[1:]}"


def _near(name: object, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1) if isinstance(name, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""

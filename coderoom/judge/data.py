"""Strict data, and the names and mistakes in it, for cases and specs."""

from __future__ import annotations

import keyword
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from coderoom.errors import GenerationError

T = TypeVar("T")


def name_problem(name: str) -> str | None:
    """Why a string is not a valid name for a function or argument; `None` if it is one."""
    if not name.isidentifier() or not name.isascii():
        return f"{name!r:.80} is not a valid identifier; use letters, digits and _, and do not start with a digit"
    if keyword.iskeyword(name):
        return f"{name!r} is a keyword of Python; take another name"
    if name.startswith("__"):
        return f"{name!r:.80} starts with two underscores; such names are reserved by Python"
    return None


def _check_name(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(problem)
    return name


Name = Annotated[str, Field(max_length=100), AfterValidator(_check_name)]


class Data(BaseModel):
    """Data that cannot be changed and has no unknown fields."""

    __test__: ClassVar[bool] = False  # Not for pytest, whatever the name of a class.
    model_config = ConfigDict(extra="forbid", frozen=True)


def validated(kind: TypeAdapter[T], data: Any, root: str) -> T:
    """The data, checked; `GenerationError` has the mistakes, one line each, with their places below the root."""
    try:
        return kind.validate_python(data)
    except ValidationError as error:
        lines = []
        for found in error.errors(include_url=False):
            place = root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"])
            lines.append(f"{place}: {found['msg'].removeprefix('Value error, ')}.")
        raise GenerationError("\n".join(lines)) from error

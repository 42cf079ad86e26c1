"""What only the Docker wall can be asked for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from coderoom.errors import RequestError

__all__ = ["DEFAULT_IMAGE", "DockerOptions"]

DEFAULT_IMAGE = "python:3-slim"

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {unit: 1024**power for power, unit in enumerate("bkmgt")}


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size is a number of bytes, or for instance '512m' or '2g'")
    return int(float(match[1]) * _UNITS[match[2].lower() or "b"])


class DockerOptions(BaseModel):
    """What only the Docker wall can be asked for.

    The limits are those of the container, which all sessions of a sandbox share.

    Attributes:
        image: The image; it needs Python 3.8 or later as `python3`.
        pull: Whether an image that is not on this machine is fetched.
        memory: How much memory, as bytes or for instance `"2g"`; `None`: what one session may use, files in memory
            included, and a quarter GiB for the worker.
        cpus: How many processors' worth of time.
        processes: How many processes and threads; `None`: those of four sessions, and 64 for the worker.
        gpus: `"all"`, how many, or the ids of those that the code may use; `None`: none.
        runtime: The engine's runtime, if it is not the default one. One that puts a kernel of its own between
            (gVisor, Kata Containers) cannot be used.
        strict: Refuse an engine that leaves out part of the wall, a limit that its kernel does not know for instance.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: str = Field(default=DEFAULT_IMAGE, min_length=1)
    pull: bool = True
    memory: Annotated[int | None, BeforeValidator(_bytes)] = Field(default=None, ge=32 * 1024**2)
    cpus: float = Field(default=2, gt=0, allow_inf_nan=False)
    processes: int | None = Field(default=None, ge=8)
    gpus: Literal["all"] | Annotated[int, Field(ge=1, strict=True)] | list[str] | None = None
    runtime: str | None = Field(default=None, min_length=1)
    strict: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DockerOptions:
        """Check options.

        Raises:
            RequestError: One is unknown or wrong; the message lists all of them.
        """
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            # One message for each option, though each of several types may have refused it.
            found = {str(mistake["loc"][0]): mistake for mistake in reversed(error.errors())}
            said = [_mistake(name, found[name], options[name]) for name in options if name in found]
            raise RequestError(f"Wrong options of the wall 'docker': {'; '.join(said)}.") from error


def _mistake(name: str, found: Mapping[str, Any], value: Any) -> str:
    if found["type"] != "extra_forbidden":
        return f"{name!r} cannot be {value!r} ({found['msg'].removeprefix('Value error, ')})"
    known = sorted(DockerOptions.model_fields)
    near = difflib.get_close_matches(name, known, n=1)
    return f"there is no {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}")

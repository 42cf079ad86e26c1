"""What our own executors have in common: a folder, a time, and variables that are passed on by their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import Field, field_validator

from coderoom._util.components import StrictConfig

__all__ = ["OwnConfig", "WorksInFolder", "absolute", "texts"]


class OwnConfig(StrictConfig):
    """What the declarative forms of our own executors have in common."""

    work_dir: str | None = Field(default=None, min_length=1)
    timeout: float = Field(default=60, gt=0, allow_inf_nan=False)
    env: list[str] = Field(default_factory=list)
    python: str | None = Field(default=None, min_length=1)

    @field_validator("env")
    @classmethod
    def _are_names(cls, env: list[str]) -> list[str]:
        for name in env:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} in env is not the name of an environment variable")
        return env


class _Place(Protocol):
    work_dir: Path


C = TypeVar("C", bound=OwnConfig)
P = TypeVar("P", bound=_Place)


class WorksInFolder(Generic[C, P]):
    """An executor with a config, and a place once it is started."""

    _config: C
    _place: P | None

    @property
    def timeout(self) -> float:
        """The seconds that each block has."""
        return self._config.timeout

    @property
    def work_dir(self) -> Path | None:
        """The folder that the code works in; `None` while a temporary one is not there."""
        if self._place is not None:
            return self._place.work_dir
        return None if self._config.work_dir is None else absolute(self._config.work_dir)

    @property
    def _started(self) -> bool:
        return self._place is not None

    def _to_config(self) -> C:
        return self._config.model_copy(deep=True)


def absolute(folder: str) -> Path:
    """Return a configured folder as an absolute path."""
    return Path(folder).expanduser().absolute()


def texts(name: str, given: Sequence[str | Path]) -> list[str]:
    """Return an argument as a list of texts.

    Raises:
        ValueError: It is one text, which is a sequence too, of its letters.
    """
    if isinstance(given, str):
        raise ValueError(f"{name}={given!r} must be a list, not one string")
    return [os.fspath(item) for item in given]

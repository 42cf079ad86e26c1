"""The configs of `SandboxCodeExecutor` and `LocalCodeExecutor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from coderoom._util.components import StrictConfig
from coderoom.sandbox import EngineName, Limits, WallName
from coderoom.sandbox.registry import ENGINES, asked_in_vain

if TYPE_CHECKING:
    from coderoom.sandbox import Sandbox

State = Literal["session", "fresh"]
Policy = Literal["open", "restricted"]


class LocalCodeExecutorConfig(StrictConfig):
    """The config of a `LocalCodeExecutor`. Each field is the constructor's argument of the same name."""

    work_dir: str | None = Field(default=None, min_length=1)
    timeout: float = Field(default=60, gt=0, le=86_400, allow_inf_nan=False)
    env: list[str] = Field(default_factory=list)
    python: str | None = Field(default=None, min_length=1)

    @field_validator("env")
    @classmethod
    def _are_names(cls, env: list[str]) -> list[str]:
        for name in env:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} in env is not the name of an environment variable")
        return env


class SandboxCodeExecutorConfig(LocalCodeExecutorConfig):
    """The config of a `SandboxCodeExecutor`. Each field is the constructor's argument of the same name."""

    state: State = "session"
    wall: WallName = "auto"
    preload: list[str] = Field(default_factory=list)
    network: bool = False
    policy: Policy = "open"
    limits: Limits | None = None
    readable: list[str] = Field(default_factory=list)
    options: dict[str, Any] = Field(default_factory=dict)
    engine: EngineName = "cpython"

    @model_validator(mode="after")
    def _fits_the_engine(self) -> Self:
        # An engine is loaded, and with it the package that brings it, only if it is not the usual one.
        unknown = [] if self.engine == "cpython" else asked_in_vain(ENGINES.load(self.engine), self)
        if unknown:
            without = f"has no {' and no '.join(unknown)}; leave that out, or use 'cpython'"
            raise ValueError(f"the engine {self.engine!r} {without}")
        return self

    @field_serializer("limits")
    def _as_given(self, limits: Limits | None) -> dict[str, Any] | None:
        return None if limits is None else limits.model_dump(exclude_unset=True)

    @property
    def folder(self) -> Path | None:
        """The work directory as an absolute path; `None` for a temporary one."""
        return None if self.work_dir is None else Path(self.work_dir).expanduser().absolute()

    def make_sandbox(self, work_dir: Path) -> Sandbox:
        """Create a sandbox with these settings."""
        from coderoom.sandbox import Sandbox  # Imports the engines, which a check of the config does not need.

        return Sandbox(
            self.wall,
            engine=self.engine,
            preload=self.preload,
            limits=(self.limits or Limits()).model_copy(update={"wall_seconds": self.timeout}),
            workspace=work_dir,
            network=self.network,
            policy=self.policy,
            env={name: os.environ[name] for name in self.env if name in os.environ},
            python=self.python,
            readable=self.readable,
            options=self.options,
        )

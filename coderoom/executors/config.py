"""The configs of CodeRoom's executors, and how sandboxes are made of them or kept warm for others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from coderoom._util.components import StrictConfig
from coderoom.sandbox import Limits, Sandbox, WallName

State = Literal["session", "fresh"]
Policy = Literal["open", "restricted"]
EngineName = Literal["cpython", "monty"]


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
        unknown = [name for name in ("network", "python", "readable", "options") if getattr(self, name)]
        unknown += ["wall"] if self.wall != "auto" else []
        if self.engine == "monty" and unknown:
            raise ValueError(f"the engine 'monty' has no {' and no '.join(unknown)}; leave that out, or use 'cpython'")
        return self

    @field_serializer("limits")
    def _as_given(self, limits: Limits | None) -> dict[str, Any] | None:
        return None if limits is None else limits.model_dump(exclude_unset=True)

    @property
    def folder(self) -> Path | None:
        """The work directory as an absolute path; `None` for a temporary one."""
        return None if self.work_dir is None else Path(self.work_dir).expanduser().absolute()

    def all_limits(self) -> Limits:
        """The limits, including the timeout."""
        return (self.limits or Limits()).model_copy(update={"wall_seconds": self.timeout})

    def make_sandbox(self, work_dir: Path) -> Sandbox:
        """Create a sandbox with these settings."""
        return Sandbox(
            self.wall,
            engine=self.engine,
            preload=self.preload,
            limits=self.all_limits(),
            workspace=work_dir,
            network=self.network,
            policy=self.policy,
            env={name: os.environ[name] for name in self.env if name in os.environ},
            python=self.python,
            readable=self.readable,
            options=self.options,
        )


def as_data(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor that are fields of a config, with paths as text and sequences as lists."""
    found = {name: value for name, value in arguments.items() if name in SandboxCodeExecutorConfig.model_fields}
    for name, value in found.items():
        if isinstance(value, Path):
            found[name] = str(value)
        elif isinstance(value, Mapping):
            found[name] = dict(value)
        elif name in ("preload", "env", "readable"):
            if isinstance(value, str):  # It is a sequence of strings too.
                raise ValueError(f"{name}={value!r} must be a list, not one string")
            found[name] = [os.fspath(each) for each in value]
    return found


class WarmSandboxes:
    """Sandboxes that executors leave behind, for others with the same settings; sessions are never shared.

    Batches on a cluster use them, whose items share a folder.

    Attributes:
        idle: Those that nobody uses now.
    """

    def __init__(self) -> None:
        self.idle: list[Sandbox] = []

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Have all executors that start in this block take their sandboxes from here, and leave them here."""
        token = LENDER.set(self)
        try:
            yield
        finally:
            LENDER.reset(token)

    def take(self, new: Sandbox) -> Sandbox:
        """A warm sandbox with the settings of a new one, or that itself."""
        found = next((sandbox for sandbox in self.idle if sandbox.config == new.config), new)
        if found is not new:
            self.idle.remove(found)
        return found

    def leave(self, sandbox: Sandbox) -> None:
        """Keep a sandbox whose sessions are closed."""
        self.idle.append(sandbox)

    async def close(self) -> None:
        """Close all that are kept."""
        while self.idle:
            await self.idle.pop().close()


LENDER: ContextVar[WarmSandboxes | None] = ContextVar("warm_sandboxes", default=None)
"""Where executors get warm sandboxes now, if anywhere."""

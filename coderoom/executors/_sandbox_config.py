"""The declarative form of a `SandboxCodeExecutor`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_serializer, field_validator

from coderoom._components import StrictConfig
from coderoom.sandbox import Limits

__all__ = ["Policy", "SandboxCodeExecutorConfig", "State", "WallName"]

State = Literal["session", "fresh"]
WallName = Literal["auto", "bubblewrap", "namespaces", "sandlock", "landlock", "docker", "none"]
Policy = Literal["open", "restricted"]


class SandboxCodeExecutorConfig(StrictConfig):
    """The declarative form of `SandboxCodeExecutor`; each field is the constructor's argument of that name."""

    work_dir: str | None = Field(default=None, min_length=1)
    timeout: float = Field(default=60, gt=0, le=86_400, allow_inf_nan=False)
    state: State = "session"
    wall: WallName = "auto"
    preload: list[str] = Field(default_factory=list)
    network: bool = False
    policy: Policy = "open"
    limits: Limits | None = None
    env: list[str] = Field(default_factory=list)
    python: str | None = Field(default=None, min_length=1)
    readable: list[str] = Field(default_factory=list)
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("env")
    @classmethod
    def _are_names(cls, env: list[str]) -> list[str]:
        for name in env:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} in env is not the name of an environment variable")
        return env

    @field_serializer("limits")
    def _as_given(self, limits: Limits | None) -> dict[str, Any] | None:
        return None if limits is None else limits.model_dump(exclude_unset=True)

    def all_limits(self) -> Limits:
        """The limits with the timeout among them."""
        return (self.limits or Limits()).model_copy(update={"wall_seconds": self.timeout})

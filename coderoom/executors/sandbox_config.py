"""The declarative form of a `SandboxCodeExecutor`."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_serializer, model_validator

from coderoom.executors.own import OwnConfig
from coderoom.sandbox import Limits

__all__ = ["EngineName", "Policy", "SandboxCodeExecutorConfig", "State", "WallName"]

State = Literal["session", "fresh"]
WallName = Literal["auto", "bubblewrap", "namespaces", "sandlock", "landlock", "docker", "none"]
Policy = Literal["open", "restricted"]
EngineName = Literal["cpython", "monty"]


class SandboxCodeExecutorConfig(OwnConfig):
    """The declarative form of `SandboxCodeExecutor`; each field is the constructor's argument of that name."""

    timeout: float = Field(default=60, gt=0, le=86_400, allow_inf_nan=False)
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
        asked = [name for name in ("network", "python", "readable", "options") if getattr(self, name)]
        asked += ["wall"] if self.wall != "auto" else []
        if self.engine == "monty" and asked:
            raise ValueError(f"the engine 'monty' has no {' and no '.join(asked)}; leave that out, or use 'cpython'")
        return self

    @field_serializer("limits")
    def _as_given(self, limits: Limits | None) -> dict[str, Any] | None:
        return None if limits is None else limits.model_dump(exclude_unset=True)

    def all_limits(self) -> Limits:
        """The limits with the timeout among them."""
        return (self.limits or Limits()).model_copy(update={"wall_seconds": self.timeout})

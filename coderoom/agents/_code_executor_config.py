"""The declarative form and the saved state of a `CodeExecutorAgent`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_agentchat.state import BaseState
from autogen_core import ComponentModel
from pydantic import Field

from coderoom._components import StrictConfig

__all__ = ["CodeExecutorAgentConfig", "CodeExecutorAgentState"]


class CodeExecutorAgentConfig(StrictConfig):
    """The declarative form of a `CodeExecutorAgent`; each field is the constructor's argument of that name."""

    name: str
    code_executor: ComponentModel
    model_client: ComponentModel | None = None
    model_context: ComponentModel | None = None
    model_client_stream: bool = False
    max_retries_on_error: int = Field(default=0, ge=0)
    description: str | None = None
    system_message: str | None = None
    """Left out: the default one. Null or an empty string: none at all."""
    sources: list[str] | None = None
    supported_languages: list[str] | None = None
    approval: ComponentModel | None = None
    """The constructor's `approval_func`, which must be a component to stand in a config."""
    reflect: bool = True
    max_output_chars: int = Field(default=10_000, ge=200)


class CodeExecutorAgentState(BaseState):
    """What `CodeExecutorAgent.save_state` gives."""

    type: str = "CodeExecutorAgentState"
    llm_context: Mapping[str, Any] = Field(default_factory=dict)
    taken: list[str] = Field(default_factory=list)

"""The declarative form and the saved state of a `CodeActAgent`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

from autogen_core import ComponentModel
from autogen_core.code_executor import CodeBlock
from pydantic import BaseModel, ConfigDict, Field, model_validator

from coderoom._util.components import StrictConfig
from coderoom.agents.attempt import CodeFormat
from coderoom.agents.model_calls import ConversationState
from coderoom.sandbox import RecordedCall

__all__ = [
    "CodeActAgentConfig",
    "CodeActAgentState",
    "OnError",
    "PastCell",
    "check_arguments",
]

OnError = Literal["keep", "rollback"]


class CodeActAgentConfig(StrictConfig):
    """The declarative form of a `CodeActAgent`; each field is the constructor's argument of that name."""

    name: str
    model_client: ComponentModel
    code_executor: ComponentModel | None = None
    tools: list[ComponentModel] = Field(default_factory=list)
    workbench: list[ComponentModel] = Field(default_factory=list)
    model_context: ComponentModel | None = None
    model_client_stream: bool = False
    description: str | None = None
    system_message: str | None = None
    """Left out: the default one. Null or an empty string: nothing but the functions."""
    code_format: CodeFormat = "fence"
    max_steps: int = Field(default=10, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_seconds: float | None = Field(default=None, gt=0)
    on_error: OnError = "keep"
    approval: ComponentModel | None = None
    """The constructor's `approval_func`, which must be a component to stand in a config."""
    max_output_chars: int = Field(default=10_000, ge=200)

    @model_validator(mode="after")
    def _keeps_a_session(self) -> Self:
        executor = self.code_executor
        if executor is None:
            return self
        if executor.provider.startswith(_OTHERS):
            name = executor.provider.rpartition(".")[2]
            raise ValueError(f"CodeActAgent needs a SandboxCodeExecutor as its code_executor, not {name!r}.")
        state = executor.config.get("state", "session")
        if state != "session":
            raise ValueError(f"CodeActAgent needs a code_executor with state='session', not {state!r}.")
        return self


class PastCell(BaseModel):
    """A reply's code that ran well, with what the host answered it.

    Attributes:
        blocks: The blocks, in order.
        calls: The answers of host functions.
        output: The beginning of what it printed.
        output_digest: What the whole of it comes to; `None` if nobody knows.
    """

    model_config = ConfigDict(extra="forbid")

    blocks: list[CodeBlock]
    calls: list[RecordedCall] = Field(default_factory=list)
    output: str | None = None
    output_digest: str | None = None


class CodeActAgentState(ConversationState):
    """What `CodeActAgent.save_state` gives."""

    type: str = "CodeActAgentState"
    cells: list[PastCell] = Field(default_factory=list)
    failed: int = 0
    workbench: list[Mapping[str, Any]] = Field(default_factory=list)


_OTHERS = ("coderoom.executors.LocalCodeExecutor", "autogen_ext.code_executors.")


def check_arguments(code_format: CodeFormat, on_error: OnError) -> None:
    """Check what a constructor gets, as the config is checked.

    Raises:
        ValueError: One is none of the words that there are.
    """
    for what, value, known in (("code_format", code_format, CodeFormat), ("on_error", on_error, OnError)):
        if value not in get_args(known):
            raise ValueError(f"{what} must be one of {', '.join(map(repr, get_args(known)))}, not {value!r}.")

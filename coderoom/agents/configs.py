"""The declarative forms and the saved states of `CodeExecutorAgent` and `CodeActAgent`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

from autogen_core import ComponentModel
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_core.models import ChatCompletionClient
from pydantic import BaseModel, ConfigDict, Field, model_validator

from coderoom._util.components import StrictConfig
from coderoom.agents.attempt import CodeFormat
from coderoom.agents.base import ConversationState
from coderoom.executors import Checkpoints
from coderoom.sandbox import RecordedCall

__all__ = [
    "CodeActAgentConfig",
    "CodeActAgentState",
    "CodeExecutorAgentConfig",
    "CodeExecutorAgentState",
    "OnError",
    "PastCell",
    "RetryFrom",
    "check_arguments",
    "check_retries",
]

RetryFrom = Literal["failed", "clean"]


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
    retry_from: RetryFrom = "failed"


class CodeExecutorAgentState(ConversationState):
    """What `CodeExecutorAgent.save_state` gives."""

    type: str = "CodeExecutorAgentState"


def check_retries(
    count: int, model_client: ChatCompletionClient | None, retry_from: RetryFrom, executor: CodeExecutor
) -> None:
    """Check the arguments that are about further attempts.

    Raises:
        ValueError: They do not fit together.
    """
    if count < 0:
        raise ValueError(f"max_retries_on_error must be 0 or more, not {count}.")
    if count > 0 and model_client is None:
        raise ValueError("max_retries_on_error needs a model_client: without one nobody can write the next try.")
    if retry_from not in get_args(RetryFrom):
        raise ValueError(f"retry_from must be one of {', '.join(map(repr, get_args(RetryFrom)))}, not {retry_from!r}.")
    if retry_from == "clean" and not isinstance(executor, Checkpoints):
        raise ValueError(
            "retry_from='clean' needs an executor that can undo what code did, such as SandboxCodeExecutor; "
            f"{type(executor).__name__!r} cannot."
        )


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

"""The declarative form and the saved state of a `CodeExecutorAgent`."""

from __future__ import annotations

from typing import Literal, get_args

from autogen_core import ComponentModel
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient
from pydantic import Field

from coderoom._util.components import StrictConfig
from coderoom.agents.model_calls import ConversationState
from coderoom.executors import Checkpoints

__all__ = ["CodeExecutorAgentConfig", "CodeExecutorAgentState", "RetryFrom", "check_retries"]

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

"""What the tests of the agents share: real model clients that write down what they are asked, and small texts."""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent, ReviewerAgent, ReviewVerdict
from coderoom.executors import LocalCodeExecutor

TASK = "Compute it."
GOOD = "```python\nprint(6 * 7)\n```"
BAD = "```python\nraise ValueError('first')\n```"
WORSE = "```python\nraise KeyError('second')\n```"
COBOL = "```cobol\nSTOP RUN.\n```"

Item = BaseAgentEvent | BaseChatMessage | Response


def python(code: str) -> str:
    return f"```python\n{code}\n```"


def decide(retry: bool, reason: str = "a reason") -> str:
    return json.dumps({"reason": reason, "retry": retry})


def verdict(approved: bool, summary: str = "Seen.", issues: Sequence[Any] = ()) -> str:
    return json.dumps({"approved": approved, "issues": list(issues), "summary": summary})


def info(**abilities: bool) -> ModelInfo:
    """A model that can do nothing but what is said."""
    able = {"json_output": False, "structured_output": False, "function_calling": False, "vision": False, **abilities}
    return cast(ModelInfo, {"family": ModelFamily.UNKNOWN, **able})


@dataclass(frozen=True)
class Call:
    """One model call."""

    messages: list[LLMMessage]
    json_output: object
    token: CancellationToken | None
    streamed: bool

    @property
    def texts(self) -> list[str]:
        return texts(self.messages)

    @property
    def system(self) -> list[str]:
        return [message.content for message in self.messages if isinstance(message, SystemMessage)]


class Client(ReplayChatCompletionClient):
    """AutoGen's replay client, which also writes down streams, and calls that fail."""

    def __init__(self, *replies: str | CreateResult, **abilities: bool) -> None:
        super().__init__(list(replies), model_info=info(**abilities))
        self.calls: list[Call] = []

    async def before(self, number: int) -> None:
        """What happens in call `number`, counted from 0, before there is an answer."""

    @property
    def used_up(self) -> bool:
        return self._current_index == len(self.chat_completions)

    async def create(self, messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        await self._note(messages, False, **arguments)
        return await super().create(messages, **arguments)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        await self._note(messages, True, **arguments)
        async for item in super().create_stream(messages, **arguments):
            yield item

    async def _note(
        self,
        messages: Sequence[LLMMessage],
        streamed: bool,
        json_output: object = None,
        cancellation_token: CancellationToken | None = None,
        **_: Any,
    ) -> None:
        number = len(self.calls)
        self.calls.append(Call(copy.deepcopy(list(messages)), json_output, cancellation_token, streamed))
        await self.before(number)


class FailingClient(Client):
    """Fails in the calls with the given numbers; the replies are not used up by that."""

    def __init__(self, fail_in: Iterable[int], *replies: str, error: Exception | None = None, **abilities: bool):
        super().__init__(*replies, **abilities)
        self._fail_in = set(fail_in)
        self._error = error or ConnectionError("the line is dead")

    async def before(self, number: int) -> None:
        if number in self._fail_in:
            raise self._error


class HangingClient(Client):
    """Never answers the call with the given number, whatever its token says."""

    def __init__(self, hang_in: int, *replies: str, **abilities: bool):
        super().__init__(*replies, **abilities)
        self._hang_in = hang_in
        self.hangs = asyncio.Event()

    async def before(self, number: int) -> None:
        if number == self._hang_in:
            self.hangs.set()
            await asyncio.Event().wait()


class PartialClient(Client):
    """Describes itself with next to nothing, as old and home-made clients do."""

    @property
    def model_info(self) -> ModelInfo:
        return cast(ModelInfo, {"family": ModelFamily.UNKNOWN})


class EchoClient(ReplayChatCompletionClient):
    """Answers with the system messages that it was sent, so that they can be read off an agent that was loaded."""

    component_provider_override = "tests.agents.helpers.EchoClient"

    def __init__(self, chat_completions: Sequence[str | CreateResult] = (), model_info: ModelInfo | None = None):
        super().__init__(chat_completions, model_info or info())

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:
        said = json.dumps([message.content for message in messages if isinstance(message, SystemMessage)])
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        return CreateResult(finish_reason="stop", content=said, usage=usage, cached=False)


class KeepingExecutor(LocalCodeExecutor):
    """Runs code for real and keeps every result, as an executor with a cache does."""

    def __init__(self, work_dir: str | Path) -> None:
        super().__init__(work_dir)
        self.kept: list[tuple[CodeResult, tuple[int, str]]] = []

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken, on_output: Any = None
    ) -> Any:
        result = await super().execute_code_blocks(code_blocks, cancellation_token)
        self.kept.append((result, (result.exit_code, result.output)))
        return result


class BareExecutor(CodeExecutor):
    """The least that AutoGen asks of an executor; gives the results, and raises the errors, that it was given."""

    def __init__(self, *results: CodeResult | Exception) -> None:
        self._results = list(results)
        self.received: list[list[CodeBlock]] = []

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        self.received.append(code_blocks)
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def restart(self) -> None:
        pass


class Approver:
    """Answers with what it was given, asynchronously, and keeps what it was asked."""

    def __init__(self, approved: bool, reason: str = "it deletes files") -> None:
        self._response = ApprovalResponse(approved=approved, reason=reason)
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        self.asked.append(request)
        return self._response


class LoudCoder(CodeExecutorAgent):
    """A user's own coder."""


class LoudReviewer(ReviewerAgent):
    """A user's own reviewer."""


class MakeCoder(Protocol):
    """Makes an agent with a model and a local executor; the test's end closes it."""

    def __call__(self, client: ChatCompletionClient, **arguments: Any) -> CodeExecutorAgent: ...


class MakeTerminal(Protocol):
    """Makes an agent without a model and with a local executor; the test's end closes it."""

    def __call__(self, **arguments: Any) -> CodeExecutorAgent: ...


def as_messages(said: Sequence[str | BaseChatMessage]) -> list[BaseChatMessage]:
    return [TextMessage(content=text, source="user") if isinstance(text, str) else text for text in said]


async def turn(agent: BaseChatAgent, *said: str | BaseChatMessage, token: CancellationToken | None = None) -> Response:
    async with asyncio.timeout(60):
        return await agent.on_messages(as_messages(said), token or CancellationToken())


async def stream(
    agent: BaseChatAgent, *said: str | BaseChatMessage, token: CancellationToken | None = None
) -> list[Item]:
    async with asyncio.timeout(60):
        items = agent.on_messages_stream(as_messages(said), token or CancellationToken())
        return [item async for item in items]


def begin(
    agent: BaseChatAgent, *said: str | BaseChatMessage, token: CancellationToken | None = None
) -> tuple[asyncio.Task[Response], CancellationToken]:
    token = token or CancellationToken()
    return asyncio.create_task(agent.on_messages(as_messages(said), token)), token


async def cancelled(running: asyncio.Task[Response], token: CancellationToken, way: str) -> None:
    """Cancel a turn, by its token or with its task, and wait for its end."""
    if way == "token":
        token.cancel()
    else:
        running.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await running


def said_by(source: str, text: str) -> TextMessage:
    return TextMessage(content=text, source=source)


def text_of(response: Response) -> str:
    assert isinstance(response.chat_message, TextMessage)
    return response.chat_message.content


def facts_of(response: Response) -> dict[str, str]:
    """The chat message's metadata without the common beginning of its keys."""
    return {key.removeprefix("coderoom."): value for key, value in response.chat_message.metadata.items()}


def texts(messages: Sequence[LLMMessage]) -> list[str]:
    """The messages' contents as text, pictures as `<image>`."""
    found = []
    for message in messages:
        content = message.content
        if isinstance(message, UserMessage) and not isinstance(content, str):
            content = "".join(part if isinstance(part, str) else "<image>" for part in message.content)
        found.append(str(content))
    return found


async def context_of(agent: CodeExecutorAgent | ReviewerAgent) -> list[str]:
    return texts(await agent.model_context.get_messages())


async def roles_of(agent: CodeExecutorAgent | ReviewerAgent) -> list[str]:
    """Who said what the agent remembers: "model" or "user"."""
    messages = await agent.model_context.get_messages()
    return ["model" if isinstance(message, AssistantMessage) else "user" for message in messages]


def total(messages: Iterable[BaseAgentEvent | BaseChatMessage]) -> RequestUsage:
    counted = [message.models_usage for message in messages if message.models_usage is not None]
    return RequestUsage(
        prompt_tokens=sum(usage.prompt_tokens for usage in counted),
        completion_tokens=sum(usage.completion_tokens for usage in counted),
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so; fail if it never is."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def let_others_run() -> None:
    """Give everything that could go on the chance to do so."""
    for _ in range(100):
        await asyncio.sleep(0)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


# --- Reviews ---


def attempt(outcome: str = "ok", exit_code: str = "0", content: str = "Done. It printed 42.") -> TextMessage:
    """What a coder's message is to a reviewer: text, and the facts of its last run."""
    metadata = {"coderoom.outcome": outcome, "coderoom.exit_code": exit_code, "coderoom.attempts": "1"}
    return TextMessage(content=content, source="coder", metadata=metadata)


def verdict_in(response: Response) -> ReviewVerdict:
    found = ReviewVerdict.model_validate_json(response.chat_message.metadata["coderoom.verdict"])
    assert response.chat_message.metadata["coderoom.approved"] == str(found.approved).lower()
    return found


async def review(reply: str | CreateResult, *said: str | BaseChatMessage, **abilities: bool) -> ReviewVerdict:
    reviewer = ReviewerAgent("reviewer", Client(reply, **abilities))
    return verdict_in(await turn(reviewer, *(said or (TASK, attempt()))))

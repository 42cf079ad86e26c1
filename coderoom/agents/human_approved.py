"""`HumanApprovedAgent`: asks a person before another agent's code runs, through AutoGen's input function."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, cast

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.messages import BaseChatMessage, CodeExecutionEvent, TextMessage, UserInputRequestedEvent
from autogen_core import CancellationToken, ComponentLoader, ComponentModel
from autogen_core.models import ChatCompletionClient
from pydantic import Field

from coderoom._util.components import ArgumentsConfig, Seconds, TimedConfig
from coderoom.agents import metadata as keys
from coderoom.agents.base import Item
from coderoom.agents.code_act import CodeActAgent
from coderoom.agents.code_executor import CodeExecutorAgent
from coderoom.agents.conversation import StreamingAgent
from coderoom.approval import (
    Approval,
    ApprovalFuncType,
    ApprovalRequest,
    ApprovalResponse,
    ChainApproval,
    HumanApproval,
    InputApproval,
    InputFunc,
    ask_approval,
)
from coderoom.steps import SETTLE_SECONDS


class HumanApprovedAgentConfig(TimedConfig):
    """The config of a `HumanApprovedAgent`. Each field is the constructor's argument of the same name."""

    agent: ComponentModel
    name: str | None = Field(default=None, description="The name of `agent`, which is renamed; left out: its own.")
    timeout: Seconds | None = 300.0
    prompt: str = "Run this code?"
    mode: Literal["first", "all"] = "first"


class HumanApprovedAgent(ArgumentsConfig, StreamingAgent, UserProxyAgent):
    """Asks a person before another agent runs code.

    It is a `UserProxyAgent` of AutoGen, so programs that provide input functions, AutoGen Studio for instance, provide
    one here too. Everything else is the other agent's: its turns, its messages, its state, its name.

    Before code runs, the stream has a message with the code and the question, and the input function is called. The
    person may edit the code. The reason of a no goes to the agent's model; a no without one ends the turn with outcome
    `rejected`. A timeout, an error and three unclear answers count as no. Without an input function the person is asked
    at the terminal, as by `coderoom.approval.HumanApproval`.

    If the agent has its own approval, that one decides first, and the person decides what it leaves open. Where its
    `call_approval` would ask at the terminal, this person is asked.

    Args:
        agent: A `CodeExecutorAgent` or a `CodeActAgent`. This agent owns it from now on.
        input_func: Returns the person's answer to a question; sync, or async with a cancellation token.
        timeout: The seconds to wait for an answer; `None` for no limit. In AutoGen Studio it is at most 170.
        prompt: The question.
        mode: `"first"`: code that the agent's own approval allows runs without a question. `"all"`: the person is
            asked about all code that it does not reject.

    Raises:
        TypeError: The agent is of another kind.
        ValueError: The timeout is not above 0, or the mode is unknown.
    """

    component_config_schema = HumanApprovedAgentConfig  # type: ignore[assignment]
    component_provider_override = "coderoom.agents.HumanApprovedAgent"

    def __init__(
        self,
        agent: CodeExecutorAgent | CodeActAgent,
        *,
        input_func: InputFunc | None = None,
        timeout: float | None = 300.0,
        prompt: str = "Run this code?",
        mode: Literal["first", "all"] = "first",
    ) -> None:
        if not isinstance(agent, CodeExecutorAgent | CodeActAgent):
            raise TypeError(f"agent must be a CodeExecutorAgent or a CodeActAgent, not {type(agent).__name__!r}.")
        if mode not in ("first", "all"):
            raise ValueError(f"mode must be 'first' or 'all', not {mode!r}.")
        super().__init__(agent.name, description=agent.description)
        # AutoGen's own function reads from the terminal and cannot be cancelled.
        self._without_function = self.input_func
        if input_func is not None:
            self.input_func = cast(Any, input_func)
        self._terminal = HumanApproval(timeout=timeout, prompt=prompt)
        self._agent = agent
        self._timeout = timeout
        self._prompt = prompt
        self._mode: Literal["first", "all"] = mode
        person = _FunctionApproval(self.ask)
        self._asked: Approval = person
        own = agent.ask_instead(person)
        if own is not None:
            first = own if isinstance(own, Approval) else _FunctionApproval(own)
            self._asked = ChainApproval([first, person], mode)
            agent.ask_instead(self._asked)
        if isinstance(agent, CodeActAgent):
            agent._session.ask_about_calls_instead(partial(_asking, person))

    # --- A turn: the other agent's, with questions ---

    def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item, None]:
        """Take a turn of the other agent: yield its items and the questions.

        Args:
            messages: What is new since the last turn.
            cancellation_token: Ends the turn at once, also while a person is asked.

        Raises:
            SandboxUnavailable: The executor broke.
            asyncio.CancelledError: The token was cancelled.
        """
        return self._agent.on_messages_stream(messages, cancellation_token)

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Ask the agent's own approval, if it has one, and the person."""
        return await self._asked(request)

    async def ask(self, request: ApprovalRequest) -> ApprovalResponse:
        """Ask the person about code."""
        if self.input_func is self._without_function:
            await asyncio.sleep(SETTLE_SECONDS)
            return await self._terminal.decide(request)
        asked = str(uuid.uuid4())
        person = InputApproval(
            cast(InputFunc, self.input_func), self._timeout, self._prompt, show=lambda text: self._show(text, asked)
        )
        with UserProxyAgent.InputRequestContext.populate_context(asked):
            return await person.decide(request)

    async def _show(self, question: str, request_id: str) -> None:
        """Put the question into the stream before it is asked."""
        message = TextMessage(content=question, source=self.name, metadata={keys.SHOWN: "question"})
        await self._agent.say(message)
        await self._agent.say(UserInputRequestedEvent(request_id=request_id, source=self.name))
        await asyncio.sleep(SETTLE_SECONDS)

    async def close(self) -> None:
        """Stop the agent's executor. It starts again if the agent is used again."""
        await self._agent.close()

    # --- Passed on to the other agent ---

    @property
    def agent(self) -> CodeExecutorAgent | CodeActAgent:
        """The agent whose code the person decides on."""
        return self._agent

    @property
    def code_executor(self) -> Any:
        """Where the code runs."""
        return self._agent.code_executor

    @property
    def interrupted(self) -> CodeExecutionEvent | None:
        """The run of code that a cancellation has ended, if any."""
        return self._agent.interrupted

    @property
    def goes_on_after_cut(self) -> bool:
        """Whether the agent keeps what a turn has done that was cancelled."""
        return self._agent.goes_on_after_cut

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that other agents get."""
        return self._agent.produced_message_types

    @property
    def _model_client(self) -> ChatCompletionClient | None:
        return self._agent._model_client

    async def on_reset(self, cancellation_token: CancellationToken | None = None) -> None:
        """Reset the agent."""
        await self._agent.on_reset(cancellation_token or CancellationToken())

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Wait before the next model call or run, until `on_resume`."""
        await self._agent.on_pause(cancellation_token)

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Go on after `on_pause`."""
        await self._agent.on_resume(cancellation_token)

    async def save_state(self) -> Mapping[str, Any]:
        """The agent's state."""
        return await self._agent.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned."""
        await self._agent.load_state(state)

    async def start(self) -> None:
        """Start the agent's executor now and not on first use."""
        await self._agent.start()

    @classmethod
    def _from_config(cls, config: HumanApprovedAgentConfig) -> Self:  # type: ignore[override]
        agent = config.agent
        if config.name is not None:
            # Programs that rename agents change the name here.
            agent = agent.model_copy(update={"config": {**agent.config, "name": config.name}})
        inner = ComponentLoader.load_component(agent, object)
        return cls(cast(Any, inner), timeout=config.timeout, prompt=config.prompt, mode=config.mode)


def _asking(person: Approval, approval: Approval | ApprovalFuncType) -> Approval | ApprovalFuncType:
    """The same approval, which asks this person in place of one at the terminal."""
    if isinstance(approval, ChainApproval):
        return approval.with_members(partial(_asking, person))
    return person if isinstance(approval, HumanApproval) else approval


class _FunctionApproval(Approval):
    """An approval that calls a function."""

    def __init__(self, function: ApprovalFuncType) -> None:
        self._function = function

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Ask the function."""
        return await ask_approval(self._function, request)

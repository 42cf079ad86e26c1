"""The agents that an agent can hand over to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import BaseAgentEvent, HandoffMessage, ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)
from autogen_core.tools import BaseTool
from pydantic import Field

from coderoom.agents.attempt import Attempt
from coderoom.agents.conversation import facts, report

HandoffList = list[Annotated[str | Handoff, Field(union_mode="left_to_right")]]
"""The field of a config; `Handoff` itself refuses a text with an `AttributeError`."""


class Handoffs:
    """The agents that an agent can hand over to: `Handoff`s or names, among which its model chooses.

    `given` is the argument, and `tools` what the model is offered.
    """

    def __init__(self, handoffs: Sequence[Handoff | str] | None, model_client: ChatCompletionClient | None) -> None:
        self.given = None if handoffs is None else list(handoffs)
        made = [Handoff(target=each) if isinstance(each, str) else each for each in handoffs or ()]
        if made and model_client is None:
            raise ValueError("handoffs need a model_client, which chooses when to hand over.")
        if made and model_client is not None and not model_client.model_info["function_calling"]:
            raise ValueError("handoffs need a model that can call functions (function_calling in its model_info).")
        self._by_name = {handoff.name: handoff for handoff in made}
        if len(self._by_name) < len(made):
            raise ValueError(f"Two handoffs have the same name: {[handoff.name for handoff in made]}.")
        self.tools: list[BaseTool[Any, Any]] = [handoff.handoff_tool for handoff in made]

    def hand_over(
        self, source: str, reply: CreateResult, attempts: Sequence[Attempt]
    ) -> tuple[list[BaseAgentEvent], FunctionExecutionResultMessage, HandoffMessage]:
        """What follows from a reply that calls a handoff: events, the message for the context, and the last message.

        If a reply calls several, the first one counts. Code beside a call is not run. The next agent gets the report of
        the code that has run in this turn.
        """
        assert not isinstance(reply.content, str)
        for call in reply.content:
            if call.name not in self._by_name:
                raise TypeError(f"The model called {call.name!r}, and its tools are: {', '.join(self._by_name)}.")
        chosen = self._by_name[reply.content[0].name]
        results = [
            FunctionExecutionResult(content=self._by_name[call.name].message, name=call.name, call_id=call.id)
            for call in reply.content
        ]
        ran = [report("", attempts[-1])] if attempts else []
        context: list[LLMMessage] = [UserMessage(content=text, source=source) for text in ran]
        events: list[BaseAgentEvent] = [
            ToolCallRequestEvent(content=list(reply.content), source=source, models_usage=reply.usage),
            ToolCallExecutionEvent(content=results, source=source),
        ]
        found = facts(attempts[-1]) if attempts else {}
        last = HandoffMessage(
            content=chosen.message, target=chosen.target, source=source, context=context, metadata=found
        )
        return events, FunctionExecutionResultMessage(content=results), last

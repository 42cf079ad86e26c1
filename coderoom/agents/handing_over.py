"""`HandingOver`: a model hands over to another agent by a call, as in AutoGen's `AssistantAgent`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import HandoffMessage
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, FunctionExecutionResult, UserMessage
from autogen_core.tools import BaseTool

from coderoom.agents.attempt import Attempt, facts, report


class HandingOver:
    """The agents that a model can hand over to.

    Attributes:
        tools: What the model calls to do so, one for each agent.

    Raises:
        ValueError: The model cannot call functions, or two of them have the same name.
    """

    def __init__(self, handoffs: Sequence[Handoff | str], model_client: ChatCompletionClient | None) -> None:
        made = [Handoff(target=each) if isinstance(each, str) else each for each in handoffs]
        if made and model_client is None:
            raise ValueError("handoffs need a model_client, which chooses when to hand over.")
        if made and model_client is not None and not model_client.model_info["function_calling"]:
            raise ValueError("handoffs need a model that can call functions (function_calling in its model_info).")
        self._by_name = {handoff.name: handoff for handoff in made}
        if len(self._by_name) < len(made):
            raise ValueError(f"Two handoffs have the same name: {[handoff.name for handoff in made]}.")
        self.tools: list[BaseTool[Any, Any]] = [handoff.handoff_tool for handoff in made]

    def answer(
        self, calls: Sequence[FunctionCall], source: str, last: Attempt | None
    ) -> tuple[HandoffMessage, list[FunctionExecutionResult]]:
        """The message to the agent of the first call, with a report of the last attempt, and the results of all calls.

        Raises:
            TypeError: The model has called something else.
        """
        for call in calls:
            if call.name not in self._by_name:
                raise TypeError(f"The model called {call.name!r}, and its tools are: {', '.join(self._by_name)}.")
        results = [
            FunctionExecutionResult(content=self._by_name[call.name].message, name=call.name, call_id=call.id)
            for call in calls
        ]
        chosen = self._by_name[calls[0].name]
        message = HandoffMessage(
            content=chosen.message,
            target=chosen.target,
            source=source,
            context=[] if last is None else [UserMessage(content=report("", last), source=source)],
            metadata={} if last is None else facts(last),
        )
        return message, results

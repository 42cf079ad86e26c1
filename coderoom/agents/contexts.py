"""Several conversations with one agent, each with messages and variables of its own. Used by `CodeActAgent`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self
from weakref import WeakSet

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken, ComponentLoader

from coderoom.agents.attempt import TurnT
from coderoom.agents.branching import BranchingAgent


class AgentWithContexts(BranchingAgent[TurnT]):
    """A coding agent that can have further conversations, as agents with the same settings."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._contexts: WeakSet[Self] = WeakSet()

    def context(self) -> Self:
        """A conversation of its own: an agent with the same settings, and with its own messages and variables.

        `agent.run(task=..., ctx=context)` goes on with it. Closing the agent closes its contexts.
        Workbenches are shared.

        Raises:
            ValueError: The executor or the model context cannot be copied, since it cannot be dumped.
        """
        names = self.component_config_schema.model_fields
        given = {self.ARGUMENTS.get(name, name): getattr(self, f"_{name}") for name in names}
        for name in ("code_executor", "model_context"):
            given[name] = ComponentLoader.load_component(given[name].dump_component(), object)
        made = type(self)(**given)
        self._contexts.add(made)
        return made

    async def close_contexts(self) -> None:
        """Close the further conversations."""
        for context in list(self._contexts):
            await context.close()

    async def run(
        self,
        *,
        task: str | BaseChatMessage | Sequence[BaseChatMessage] | None = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
        ctx: Self | None = None,
    ) -> TaskResult:
        """Run the agent on a task, in the conversation of `ctx` if it is given; else as AutoGen's agents."""
        run = super().run if ctx is None else ctx.run
        return await run(task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages)

    def run_stream(
        self,
        *,
        task: str | BaseChatMessage | Sequence[BaseChatMessage] | None = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
        ctx: Self | None = None,
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult, None]:
        """Run the agent on a task and yield what happens, in the conversation of `ctx` if it is given."""
        run = super().run_stream if ctx is None else ctx.run_stream
        return run(task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages)

"""The runs of AutoGen Studio: what its page shows of them, and the end of everything that they started.

Studio makes a team for each run, and closes only the agents directly in it. Some of AutoGen's parts ignore the end of a
run, and some are never closed. This module closes and ends them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final
from weakref import WeakSet

from coderoom._util.autogen import agents_of, closers_of
from coderoom._util.tasks import at_end_of_run, closing_what_opens
from coderoom.executors import end_descendants
from coderoom.studio.autogenstudio import current_run, going_runs, store
from coderoom.studio.messages import StudioMessages, error_message, run_message

_LOOK_SECONDS: Final = 0.2
# Before these, processes and tasks can end by themselves.
_PROCESS_SECONDS: Final = 1.0
_TASK_SECONDS: Final = 3.0
_QUESTION_SECONDS: Final = 170.0
"""Studio's page ends a run after 180 seconds without an answer; an earlier refusal says why."""
_ASKS: Final = "coderoom.agents.HumanApprovedAgent"


_tasks: dict[Any, WeakSet[asyncio.Task[Any]]] = {}
"""The tasks of each run."""


def note_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Create a task, and note its run, unless the task has a context of its own. A task factory for asyncio."""
    task = asyncio.Task(coro, loop=loop, **options)
    run = current_run()
    if run is not None and options.get("context") is None:
        _tasks.setdefault(run, WeakSet()).add(task)
    return task


async def end_runs() -> None:
    """End the tasks that runs have left, and the processes below this one when no run goes on; forever."""
    over: dict[Any, float] = {}
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now, going = time.monotonic(), going_runs()
        over = {run: over.get(run, now) for run in _tasks if run not in going}
        # Not in a thread: no run may start in between.
        if over and not going and now - max(over.values()) >= _PROCESS_SECONDS:
            end_descendants()
        for run, since in over.items():
            if now - since >= _TASK_SECONDS:
                for task in _tasks.pop(run):
                    task.cancel()


def with_messages(team_manager: type[Any]) -> type[Any]:
    """Extend Studio's class that runs teams: show events and errors as messages, and close what a run opens."""

    class TeamManager(team_manager):  # type: ignore[misc]
        """Runs one team."""

        async def _create_team(self, *args: Any, **kwargs: Any) -> Any:
            team = await super()._create_team(*args, **kwargs)
            for close in closers_of(team):
                at_end_of_run(close)
            self.agents += agents_of(team, hidden=True)
            for agent in self.agents:
                agent.on_messages_stream = _noting(agent.name, agent.on_messages_stream, self.failures)
            return team

        async def run_stream(self, task: Any, team_config: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            """Run the team; a failure becomes a message before it is raised."""
            self.failures: list[tuple[str, Exception]] = []
            self.agents: list[Any] = []
            began = False
            messages = StudioMessages(_limit_questions(team_config))
            run = super().run_stream(task, team_config, *args, **kwargs)
            async with closing_what_opens(), storing_interrupted(self.agents), aclosing(run) as items:
                try:
                    async for item in items:
                        began = True
                        self.failures.clear()
                        for shown in messages.show(item):
                            yield shown
                except Exception as error:
                    # The page shows the error of a run that did not begin.
                    if began:
                        yield error_message(*(self.failures or [("team", error)])[0])
                    raise

    return TeamManager


@asynccontextmanager
async def storing_interrupted(agents: list[Any]) -> AsyncGenerator[None, None]:
    """When the run has ended, store the output of code that was stopped: Studio reads nothing more of the stream."""
    try:
        yield
    finally:
        for agent in agents:
            if (event := getattr(agent, "interrupted", None)) is not None:
                await store(run_message(event))


def _noting(
    name: str, turn: Callable[..., AsyncGenerator[Any, None]], failures: list[tuple[str, Exception]]
) -> Callable[..., AsyncGenerator[Any, None]]:
    """A turn that notes its error: AutoGen's teams turn it into text, without the name of the agent."""

    async def noted(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(turn(*args, **kwargs)) as items:
            try:
                async for item in items:
                    yield item
            except Exception as error:
                failures.append((name, error))
                raise

    return noted


def _limit_questions(component: Any) -> set[str]:
    """Limit the timeouts of a team's questions; return the agents whose code the page shows only in their questions."""
    found = set()
    for config in _configs(component, _ASKS):
        timeout = config.get("timeout")
        if timeout is None or (isinstance(timeout, int | float) and timeout > _QUESTION_SECONDS):
            config["timeout"] = _QUESTION_SECONDS
    # Studio gives its input function to the agents directly in the team.
    with suppress(KeyError, TypeError, AttributeError):
        for participant in component["config"]["participants"]:
            inner = participant["config"].get("agent", {}).get("config", {})
            if participant["provider"] == _ASKS and not inner.get("approval"):
                found.add(participant["config"].get("name") or inner["name"])
    return found


def _configs(data: Any, provider: str) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        if data.get("provider") == provider and isinstance(data.get("config"), dict):
            yield data["config"]
        data = list(data.values())
    if isinstance(data, list):
        for each in data:
            yield from _configs(each, provider)

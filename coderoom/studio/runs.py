"""The runs of AutoGen Studio: what they show, and that all they have started ends with them.

Studio makes a team for each run and closes only the agents that stand directly in it. Some of AutoGen's parts do not
react when a run is stopped, and some are never closed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final
from weakref import WeakSet

from coderoom._util.autogen import agents_of, closers_of
from coderoom._util.watching import at_end_of_run, closing_what_opens
from coderoom.studio.marks import end_below, marked
from coderoom.studio.messages import StudioMessages, error_message

__all__ = ["RunsLoop", "with_messages"]

_log = logging.getLogger("coderoom")

_LOOK_SECONDS: Final = 0.2
# What has its own way of ending goes first.
_PROCESS_SECONDS: Final = 1.0
_TASK_SECONDS: Final = 3.0
_QUESTION_SECONDS: Final = 170.0
"""Studio's page ends the run after 180 seconds without an answer; a no that comes before that says why."""
_ASKS: Final = "coderoom.agents.HumanApprovedAgent"


class RunsLoop(asyncio.SelectorEventLoop):
    """An event loop that knows which run its tasks and processes belong to, and ends them when that is over."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: dict[Any, WeakSet[asyncio.Task[Any]]] = {}
        self._over: dict[Any, float] = {}

    async def end_runs(self, going: Callable[[], Collection[Any]]) -> None:
        """Look after the runs for ever.

        Args:
            going: Says which runs go on; one that was stopped does not, although it may not have ended.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                self._look(going(), time.monotonic())
            except Exception:
                # The next look may do better; none at all would leave everything.
                _log.exception("What runs have left could not be ended")

    def _look(self, going: Collection[Any], now: float) -> None:
        self._over = {run: self._over.get(run, now) for run in self._tasks if run not in going}
        keep = {str(run) for run in (*going, *self._over) if now - self._over.get(run, now) < _PROCESS_SECONDS}
        if len(keep) == len(going) + len(self._over):
            return
        # Not in a thread: no run may begin in between.
        end_below(lambda run: not keep if run is None else run not in keep)
        for run, since in self._over.items():
            if now - since >= _TASK_SECONDS:
                for task in self._tasks.pop(run):
                    task.cancel()

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Begin a task, as any loop does; one of a run is known for that, unless it is given a context of its own."""
        task = super().create_task(coro, **options)
        run = _current_run()
        if run is not None and options.get("context") is None:
            self._tasks.setdefault(run, WeakSet()).add(task)
        return task

    async def subprocess_exec(self, *args: Any, env: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Start a process, as any loop does; one of a run knows of which."""
        return await super().subprocess_exec(*args, env=self._environment(env), **options)

    async def subprocess_shell(self, *args: Any, env: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Start a shell, as any loop does; one of a run knows of which."""
        return await super().subprocess_shell(*args, env=self._environment(env), **options)

    def _environment(self, env: Mapping[str, str] | None) -> Mapping[str, str] | None:
        run = _current_run()
        return env if run is None else marked(env, run)


def with_messages(team_manager: type[Any]) -> type[Any]:
    """Studio's class that makes and runs teams, with messages for events and errors, and an end of all that it opened.

    Args:
        team_manager: `autogenstudio.teammanager.TeamManager`.
    """

    class TeamManager(team_manager):  # type: ignore[misc]
        """Runs one team."""

        async def _create_team(self, *args: Any, **kwargs: Any) -> Any:
            team = await super()._create_team(*args, **kwargs)
            for close in closers_of(team):
                at_end_of_run(close)
            for agent in agents_of(team, hidden=True):
                agent.on_messages_stream = _noting(agent.name, agent.on_messages_stream, self.failures)
            return team

        async def run_stream(self, task: Any, team_config: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            """Run the team; a failure is told before it is raised."""
            self.failures: list[tuple[str, Exception]] = []
            began = False
            messages = StudioMessages(_limit_questions(team_config))
            run = super().run_stream(task, team_config, *args, **kwargs)
            async with closing_what_opens(), aclosing(run) as items:
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


def _noting(
    name: str, turn: Callable[..., AsyncGenerator[Any, None]], failures: list[tuple[str, Exception]]
) -> Callable[..., AsyncGenerator[Any, None]]:
    """A turn that notes its error: AutoGen's teams turn it into text, and do not say whose it is."""

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
    """Limit the time of a team's questions to what the page allows.

    Returns:
        The agents of which the page shows the code in their questions only.
    """
    found = set()
    for config in _configs(component, _ASKS):
        timeout = config.get("timeout")
        if timeout is None or (isinstance(timeout, int | float) and timeout > _QUESTION_SECONDS):
            config["timeout"] = _QUESTION_SECONDS
    # Studio gives its input function to the agents that stand directly in the team.
    with suppress(KeyError, TypeError, AttributeError):
        for participant in component["config"]["participants"]:
            inner = participant["config"].get("agent", {}).get("config", {})
            if participant["provider"] == _ASKS and not inner.get("approval"):
                found.add(participant["config"].get("name") or inner["name"])
    return found


def _configs(data: Any, provider: str) -> Iterator[dict[str, Any]]:
    """The configs of all components of a kind."""
    if isinstance(data, dict):
        if data.get("provider") == provider and isinstance(data.get("config"), dict):
            yield data["config"]
        data = list(data.values())
    if isinstance(data, list):
        for each in data:
            yield from _configs(each, provider)


def _current_run() -> Any:
    """The run of Studio that this is called in, or `None`."""
    module = sys.modules.get("autogenstudio.web.managers.run_context")
    with suppress(RuntimeError):  # It is in none.
        return None if module is None else module.RunContext.current_run_id()
    return None

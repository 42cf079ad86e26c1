"""What a run of AutoGen Studio has begun ends with it, whoever's part has begun it.

CodeRoom's parts end by themselves. Of AutoGen's, some do not listen when a run is stopped, and some are never closed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from weakref import WeakSet

from coderoom._util.watching import current_run
from coderoom.studio.marks import end_below, marked

__all__ = ["RunsLoop"]

_log = logging.getLogger("coderoom")

_LOOK_SECONDS: Final = 0.2
# What has its own way of ending goes first.
_PROCESS_SECONDS: Final = 1.0
_TASK_SECONDS: Final = 3.0


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
        run = current_run()
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
        run = current_run()
        return env if run is None else marked(env, run)

"""Errors of agents that are not CodeRoom's, in words: of those Studio's page says only that there was one."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from coderoom.agents.studio_messages import error_message, is_error

__all__ = ["with_errors_told"]

RunStream = Callable[..., AsyncGenerator[Any, None]]


def with_errors_told(run_stream: RunStream) -> RunStream:
    """Have a run that fails say what went wrong, if no agent has done so.

    Args:
        run_stream: Studio's method that runs a team.
    """

    @functools.wraps(run_stream)
    async def run(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        began = told = False
        try:
            async with aclosing(run_stream(*args, **kwargs)) as items:
                async for item in items:
                    began, told = True, told or is_error(item)
                    yield item
        except Exception as error:
            # Of a run that did not begin the page shows the error itself.
            if began and not told:
                yield error_message("team", error)
            raise

    return run

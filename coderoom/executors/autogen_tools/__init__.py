"""AutoGen's tools and workbenches, and functions that take its cancellation token, as functions of the host.

`coderoom.sandbox` imports this when a session is offered something and AutoGen is loaded.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from coderoom.executors.autogen_tools.token import TOKEN, Token, takes_token
from coderoom.executors.autogen_tools.tools import ToolLike, from_tool
from coderoom.executors.autogen_tools.workbench import WorkbenchLike, from_workbench
from coderoom.sandbox.functions import HostFunction, LateFunctions, from_callable

__all__ = ["adapt"]


def adapt(item: Any) -> HostFunction | LateFunctions | None:
    """What a session offers for something of AutoGen's; `None` for anything else."""
    if isinstance(item, WorkbenchLike):
        return functools.partial(from_workbench, item)
    if isinstance(item, ToolLike):
        return from_tool(item)
    if callable(item) and _takes_token(item):
        return from_callable(item, {TOKEN: Token})
    return None


def _takes_token(function: Any) -> bool:
    try:
        return takes_token(inspect.signature(function))
    except (TypeError, ValueError):  # Some that are written in C.
        return False

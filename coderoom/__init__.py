"""Teams of LLM agents that write, run, repair and review code.

This package loads and writes team files, and answers questions by code (`execute_code`). The parts are in
`coderoom.agents`, `coderoom.teams`, `coderoom.approval`, `coderoom.executors`, `coderoom.generation`,
`coderoom.sandbox` and `coderoom.blocks`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from coderoom.agents.function_agent import agent
    from coderoom.configs import dump_team, load_team
    from coderoom.errors import CodeRoomError
    from coderoom.runs import execute_code

__all__ = ["CodeRoomError", "__version__", "agent", "dump_team", "execute_code", "load_team"]


_MODULES = {
    "CodeRoomError": "errors",
    "agent": "agents.function_agent",
    "dump_team": "configs",
    "execute_code": "runs",
    "load_team": "configs",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that `import coderoom` and `coderoom --help` do not import AutoGen.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"coderoom.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

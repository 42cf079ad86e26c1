"""Teams of LLM agents that write, run, repair and review code.

This package loads and writes team files, and answers questions by code (`execute_code`). The parts are in
`coderoom.agents`, `coderoom.teams`, `coderoom.approval`, `coderoom.executors`, `coderoom.generation`,
`coderoom.sandbox` and `coderoom.blocks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coderoom._util.distribution import OnlyInFull
from coderoom._util.lazy import lazy

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from coderoom.agents.function_agent import agent
    from coderoom.configs import dump_team, load_team
    from coderoom.errors import CodeRoomError
    from coderoom.runs import execute_code

__all__ = ["CodeRoomError", "__version__", "agent", "dump_team", "execute_code", "load_team"]

OnlyInFull.install()

# Lazy, so that `import coderoom` and `coderoom --help` do not import AutoGen.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "coderoom.agents.function_agent": "agent",
        "coderoom.configs": "dump_team load_team",
        "coderoom.errors": "CodeRoomError",
        "coderoom.runs": "execute_code",
    },
)

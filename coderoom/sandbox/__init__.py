"""Places where code runs, kept from the host.

    from coderoom.sandbox import Limits, Sandbox

    async with Sandbox(preload=["numpy"], limits=Limits(wall_seconds=10)) as sandbox:
        result = await sandbox.run("print(sum(range(10)))")
        async with sandbox.session() as session:
            await session.run("x = 40")
            result = await session.run("x + 2")

A wall keeps code from the host (see `probe_walls`), limits bound what it uses, and a policy gives early feedback on
what it may do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coderoom.errors import SandboxUnavailable
    from coderoom.sandbox.blocks_run import BlocksRun, named_file, save_named
    from coderoom.sandbox.cell import LANGUAGES, PROGRAMS, STATE_LOST, remark_on, with_output
    from coderoom.sandbox.config import Limits, SandboxConfig, SourceModule, WallName
    from coderoom.sandbox.functions.callables import check_functions, host_functions
    from coderoom.sandbox.functions.function import HostFunction
    from coderoom.sandbox.functions.recorder import CallRecorder, RecordedCall
    from coderoom.sandbox.guest.restricted import Rulebook
    from coderoom.sandbox.policy import find as find_violations
    from coderoom.sandbox.policy import restricted_rules
    from coderoom.sandbox.result import (
        CANCELLED_CODE,
        Artifact,
        CodeError,
        ExecutionResult,
        FunctionCall,
        OnOutput,
        OutputChunk,
    )
    from coderoom.sandbox.sandbox import Sandbox
    from coderoom.sandbox.session import Checkpoint, Session
    from coderoom.sandbox.walls import WallReport
    from coderoom.sandbox.walls import choose as choose_wall
    from coderoom.sandbox.walls import probe_all as probe_walls

__all__ = [
    "CANCELLED_CODE",
    "LANGUAGES",
    "PROGRAMS",
    "STATE_LOST",
    "Artifact",
    "BlocksRun",
    "CallRecorder",
    "Checkpoint",
    "CodeError",
    "ExecutionResult",
    "FunctionCall",
    "HostFunction",
    "Limits",
    "OnOutput",
    "OutputChunk",
    "RecordedCall",
    "Rulebook",
    "Sandbox",
    "SandboxConfig",
    "SandboxUnavailable",
    "Session",
    "SourceModule",
    "WallName",
    "WallReport",
    "check_functions",
    "choose_wall",
    "find_violations",
    "host_functions",
    "named_file",
    "probe_walls",
    "remark_on",
    "restricted_rules",
    "save_named",
    "with_output",
]

_MODULES = {
    "BlocksRun": "coderoom.sandbox.blocks_run",
    "CANCELLED_CODE": "coderoom.sandbox.result",
    "OnOutput": "coderoom.sandbox.result",
    "named_file": "coderoom.sandbox.blocks_run",
    "save_named": "coderoom.sandbox.blocks_run",
    "Artifact": "coderoom.sandbox.result",
    "CallRecorder": "coderoom.sandbox.functions.recorder",
    "Checkpoint": "coderoom.sandbox.session",
    "CodeError": "coderoom.sandbox.result",
    "ExecutionResult": "coderoom.sandbox.result",
    "FunctionCall": "coderoom.sandbox.result",
    "HostFunction": "coderoom.sandbox.functions.function",
    "LANGUAGES": "coderoom.sandbox.cell",
    "Limits": "coderoom.sandbox.config",
    "OutputChunk": "coderoom.sandbox.result",
    "PROGRAMS": "coderoom.sandbox.cell",
    "RecordedCall": "coderoom.sandbox.functions.recorder",
    "Rulebook": "coderoom.sandbox.guest.restricted",
    "STATE_LOST": "coderoom.sandbox.cell",
    "Sandbox": "coderoom.sandbox.sandbox",
    "SandboxConfig": "coderoom.sandbox.config",
    "SandboxUnavailable": "coderoom.errors",
    "Session": "coderoom.sandbox.session",
    "SourceModule": "coderoom.sandbox.config",
    "WallName": "coderoom.sandbox.config",
    "WallReport": "coderoom.sandbox.walls",
    "check_functions": "coderoom.sandbox.functions.callables",
    "choose_wall": "coderoom.sandbox.walls:choose",
    "find_violations": "coderoom.sandbox.policy:find",
    "host_functions": "coderoom.sandbox.functions.callables",
    "probe_walls": "coderoom.sandbox.walls:probe_all",
    "remark_on": "coderoom.sandbox.cell",
    "restricted_rules": "coderoom.sandbox.policy",
    "with_output": "coderoom.sandbox.cell",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that a config is checked without what runs code.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, other_name = _MODULES[name].partition(":")
    return getattr(importlib.import_module(module), other_name or name)


def __dir__() -> list[str]:
    return sorted(__all__)

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

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.cell import LANGUAGES, PROGRAMS, STATE_LOST, remark_on, with_output
from coderoom.sandbox.config import Limits, SandboxConfig, SourceModule, WallName
from coderoom.sandbox.functions.callables import check_functions, host_functions
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.functions.recorder import CallRecorder, RecordedCall
from coderoom.sandbox.guest.restricted import Rulebook
from coderoom.sandbox.policy import find as find_violations
from coderoom.sandbox.policy import restricted_rules
from coderoom.sandbox.result import Artifact, CodeError, ExecutionResult, FunctionCall, OutputChunk
from coderoom.sandbox.sandbox import Sandbox
from coderoom.sandbox.session import Checkpoint, Session
from coderoom.sandbox.walls import WallReport
from coderoom.sandbox.walls import choose as choose_wall
from coderoom.sandbox.walls import probe_all as probe_walls

__all__ = [
    "LANGUAGES",
    "PROGRAMS",
    "STATE_LOST",
    "Artifact",
    "CallRecorder",
    "Checkpoint",
    "CodeError",
    "ExecutionResult",
    "FunctionCall",
    "HostFunction",
    "Limits",
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
    "probe_walls",
    "remark_on",
    "restricted_rules",
    "with_output",
]

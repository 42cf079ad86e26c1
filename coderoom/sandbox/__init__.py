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

from typing import TYPE_CHECKING

from coderoom._util.lazy import lazy

if TYPE_CHECKING:
    from coderoom.errors import SandboxUnavailable
    from coderoom.sandbox.blocks_run import BlocksRun, combined, named_file, save_named
    from coderoom.sandbox.cell import STATE_LOST, remark_on
    from coderoom.sandbox.config import (
        MOST_FORKS_IN_A_ROW,
        MOST_FORKS_WITH_LANDLOCK,
        Credential,
        EngineName,
        Limits,
        SandboxConfig,
        SourceModule,
        WallName,
    )
    from coderoom.sandbox.contracts import Engine, EngineSession, StartedWorker, Wall, WallReport
    from coderoom.sandbox.editing import EDITING_HELP, map_code
    from coderoom.sandbox.environments import ENVIRONMENT_HELP, ProjectEnvironment, find_environment
    from coderoom.sandbox.functions.callables import check_functions, host_functions
    from coderoom.sandbox.functions.calls import while_a_person_decides
    from coderoom.sandbox.functions.effects import Effect, EffectName
    from coderoom.sandbox.functions.function import HostFunction, NotBegun
    from coderoom.sandbox.functions.recorder import CallRecorder, RecordedCall
    from coderoom.sandbox.guest.restricted import Rulebook
    from coderoom.sandbox.languages import INTERPRETERS, LANGUAGES, PROGRAMS, SUFFIXES
    from coderoom.sandbox.overlay import Change, ChangedMeanwhile, Changes, Committed, Patch
    from coderoom.sandbox.policy import find as find_violations
    from coderoom.sandbox.policy import restricted_rules
    from coderoom.sandbox.process_tools import PROCESSES_HELP, ProcessTools
    from coderoom.sandbox.processes import Process, ProcessOutput
    from coderoom.sandbox.remote import RemoteSandbox
    from coderoom.sandbox.result import (
        CANCELLED_CODE,
        Artifact,
        CodeError,
        ExecutionResult,
        FunctionCall,
        NetworkUse,
        OnOutput,
        OutputChunk,
    )
    from coderoom.sandbox.sandbox import Sandbox
    from coderoom.sandbox.session import Checkpoint, Session, stream_gathered, with_output
    from coderoom.sandbox.sync import SyncProcess, SyncSandbox, SyncSession
    from coderoom.sandbox.walls import choose as choose_wall
    from coderoom.sandbox.walls import probe_all as probe_walls

__all__ = [
    "CANCELLED_CODE",
    "EDITING_HELP",
    "ENVIRONMENT_HELP",
    "INTERPRETERS",
    "LANGUAGES",
    "MOST_FORKS_IN_A_ROW",
    "MOST_FORKS_WITH_LANDLOCK",
    "PROCESSES_HELP",
    "PROGRAMS",
    "STATE_LOST",
    "SUFFIXES",
    "Artifact",
    "BlocksRun",
    "CallRecorder",
    "Change",
    "ChangedMeanwhile",
    "Changes",
    "Checkpoint",
    "CodeError",
    "Committed",
    "Credential",
    "Effect",
    "EffectName",
    "Engine",
    "EngineName",
    "EngineSession",
    "ExecutionResult",
    "FunctionCall",
    "HostFunction",
    "Limits",
    "NetworkUse",
    "NotBegun",
    "OnOutput",
    "OutputChunk",
    "Patch",
    "Process",
    "ProcessOutput",
    "ProcessTools",
    "ProjectEnvironment",
    "RecordedCall",
    "RemoteSandbox",
    "Rulebook",
    "Sandbox",
    "SandboxConfig",
    "SandboxUnavailable",
    "Session",
    "SourceModule",
    "StartedWorker",
    "SyncProcess",
    "SyncSandbox",
    "SyncSession",
    "Wall",
    "WallName",
    "WallReport",
    "check_functions",
    "choose_wall",
    "combined",
    "find_environment",
    "find_violations",
    "host_functions",
    "map_code",
    "named_file",
    "probe_walls",
    "remark_on",
    "restricted_rules",
    "save_named",
    "stream_gathered",
    "while_a_person_decides",
    "with_output",
]

# Lazy, so that a config is checked without what runs code.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "coderoom.errors": "SandboxUnavailable",
        "coderoom.sandbox.blocks_run": "BlocksRun combined named_file save_named",
        "coderoom.sandbox.cell": "STATE_LOST remark_on",
        "coderoom.sandbox.config": (
            "MOST_FORKS_IN_A_ROW MOST_FORKS_WITH_LANDLOCK Credential EngineName Limits SandboxConfig "
            "SourceModule WallName"
        ),
        "coderoom.sandbox.contracts": "Engine EngineSession StartedWorker Wall WallReport",
        "coderoom.sandbox.editing": "EDITING_HELP map_code",
        "coderoom.sandbox.environments": "ENVIRONMENT_HELP ProjectEnvironment find_environment",
        "coderoom.sandbox.functions.callables": "check_functions host_functions",
        "coderoom.sandbox.functions.calls": "while_a_person_decides",
        "coderoom.sandbox.functions.effects": "Effect EffectName",
        "coderoom.sandbox.functions.function": "HostFunction NotBegun",
        "coderoom.sandbox.functions.recorder": "CallRecorder RecordedCall",
        "coderoom.sandbox.guest.restricted": "Rulebook",
        "coderoom.sandbox.languages": "INTERPRETERS LANGUAGES PROGRAMS SUFFIXES",
        "coderoom.sandbox.overlay": "Change ChangedMeanwhile Changes Committed Patch",
        "coderoom.sandbox.policy": "find_violations=find restricted_rules",
        "coderoom.sandbox.process_tools": "PROCESSES_HELP ProcessTools",
        "coderoom.sandbox.processes": "Process ProcessOutput",
        "coderoom.sandbox.remote": "RemoteSandbox",
        "coderoom.sandbox.result": "CANCELLED_CODE Artifact CodeError "
        "ExecutionResult FunctionCall NetworkUse OnOutput OutputChunk",
        "coderoom.sandbox.sandbox": "Sandbox",
        "coderoom.sandbox.session": "Checkpoint Session stream_gathered with_output",
        "coderoom.sandbox.sync": "SyncProcess SyncSandbox SyncSession",
        "coderoom.sandbox.walls": "choose_wall=choose probe_walls=probe_all",
    },
)

"""Compiles programs for the engine `cpython`, and keeps what was built by its source.

Each is compiled in a fresh room of a sandbox of its own, which has no workspace and no network: nothing but the source
decides what comes of it. What is kept is memory of the host, so no code can change it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox.config import MIB, Limits, SandboxConfig
from coderoom.sandbox.contracts import Engine
from coderoom.sandbox.languages import Program
from coderoom.sandbox.result import CodeError, ExecutionResult

_MOST_KEPT = 128 * MIB
_PLACE = re.compile(r"\S+:\d+:\d+: ")
_READ = "with open('built', 'rb') as _file:\n    _built = _file.read()\n_built"


def building_config(config: SandboxConfig, wall: str) -> SandboxConfig:
    """The configuration of the sandbox in which programs for another one are compiled."""
    given = config.limits
    limits = Limits(
        wall_seconds=given.compile_seconds,
        memory_bytes=max(given.memory_bytes, 2048 * MIB),
        processes=max(given.processes, 256),
        output_bytes=given.output_bytes,
        value_bytes=64 * MIB,
    )
    changed = {"wall": wall, "limits": limits, "concurrency": os.cpu_count() or 1}
    fresh: dict[str, Any] = {
        "workspace": None,
        "network": False,
        "local_network": False,
        "credentials": {},
        "policy": "open",
        "preload": (),
        "packages": (),
    }
    return config.model_copy(update={**changed, **fresh})


class Builds:
    """Programs that were compiled, and the engine that compiles them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = asyncio.Lock()
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    async def build(self, program: Program, code: str, seconds: float) -> bytes | ExecutionResult:
        """What is built of some code; what the compiler says of it if it fails.

        Raises:
            MissingDependencyError: The compiler is not installed.
            RequestError: What is built is too large.
        """
        key = program.build, code
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        async with self._lock:
            if self._engine.lost:
                await self._engine.start()
        session = await self._engine.open({})
        try:
            shell = Program(
                ("sh", "{file}"), (), address_space=False, package=program.package, compiler=program.compiler
            )
            source = code.encode("utf-8", "surrogatepass")
            script = f"cat > {program.source}\n{program.build}\n"
            made = await session.run(script, shell, None, False, None, stdin=source)
            if made.outcome is not Outcome.OK:
                return _refused(made, seconds)
            built = (await session.run(_READ, None, None, False, None)).value
        finally:
            await session.close()
        if not isinstance(built, bytes):
            raise RequestError(f"What is built of {program.source} is too large: a program may have 48 MiB.")
        self._kept[key] = built
        while sum(map(len, self._kept.values())) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return built

    async def close(self) -> None:
        """End the engine; what was built is kept."""
        await self._engine.close()

    def kill(self) -> None:
        """As `close`, without an event loop."""
        self._lock = asyncio.Lock()
        self._engine.kill()


def _refused(made: ExecutionResult, seconds: float) -> ExecutionResult:
    """The result of a program that does not compile: what the compiler has written is the error."""
    said, error = made.output.strip(), made.error
    if made.outcome is Outcome.CANCELLED:
        return made
    if made.outcome is Outcome.TIMEOUT:
        said += f"\nThe compiler was stopped after {seconds:g} seconds, the limit compile_seconds."
    elif not said or (error is not None and error.type != "Exit"):
        said += f"\nThe compiler has failed: {error}"
    said = said.strip()
    lines = said.splitlines()
    if made.outcome is Outcome.ERROR:
        lines.sort(key=lambda line: "error" not in line.lower() and _PLACE.match(line) is None)
    error = CodeError("CompileError", (lines[0] if made.outcome is Outcome.ERROR else lines[-1]).strip(), said)
    return replace(made, stdout="", stderr=f"{said}\n", output=f"{said}\n", error=error)

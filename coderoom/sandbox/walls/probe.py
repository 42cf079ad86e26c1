"""Walls that are tried out by building them."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.limits import Limits
from coderoom.sandbox.walls.base import StartedWorker, WallReport, WallSpec
from coderoom.sandbox.walls.local import LocalWorker, identity_to_become

__all__ = ["Facts", "ProbedWall"]

_PATIENCE = 10.0
_LARGEST_ANSWER = 1 << 20
_PROBE = "from coderoom_guest.isolation.boot import probe; probe(CONTROL)"


@dataclass(frozen=True)
class Facts:
    """What a try has shown.

    Attributes:
        error: Why the wall cannot be built; empty if it can.
        nested: Why a room inside can have no namespaces of its own; empty if it can.
        idmap: Why files cannot be made to look like another's; empty if they can, or need not.
    """

    error: str = ""
    nested: str = ""
    idmap: str = ""


class ProbedWall(ABC):
    """A wall of this machine. Before its first worker starts it is built once around next to nothing.

    Attributes:
        name: The wall's name.
        program: The worker's source text, see `python_arguments`.
        by_file_system: Whether a try says nothing of workspaces on other file systems.
    """

    name: ClassVar[str]
    program: str = "from coderoom_guest.main import main; main(CONTROL)"
    by_file_system: ClassVar[bool] = False
    _known: ClassVar[dict[tuple[str, Path | None, int], Facts]] = {}

    async def probe(self) -> WallReport:
        """Try whether this wall can be built here; never raises, takes a few seconds at most."""
        try:
            facts = await self._facts(None)
            return self._report(facts)
        except Exception as error:
            return WallReport(self.name, available=False, detail=f"{type(error).__name__}: {error}")

    async def start(self, spec: WallSpec) -> StartedWorker:
        """Start a worker behind the wall.

        Raises:
            SandboxUnavailable: The wall cannot be built; the message says why and what to do.
            RequestError: An option is wrong.
        """
        if spec.options:
            raise RequestError(f"The wall {self.name!r} has no options, but got {', '.join(map(repr, spec.options))}.")
        facts = await self._facts(spec.workspace, spec.python)
        if facts.error:
            report = self._report(facts)
            raise SandboxUnavailable(f"The wall {self.name!r} cannot be built: {report.detail} {report.remedy}".strip())
        return await self._launch(spec, self.program, facts)

    @abstractmethod
    async def _launch(self, spec: WallSpec, program: str, facts: Facts) -> LocalWorker:
        """Start a program behind the wall."""

    @abstractmethod
    def _report(self, facts: Facts) -> WallReport:
        """Say in words what a try has shown."""

    async def _facts(self, workspace: Path | None, python: Path | None = None) -> Facts:
        device = 0
        if self.by_file_system and workspace is not None and identity_to_become() is not None:
            device = (await asyncio.to_thread(_status, workspace)).st_dev
        key = (self.name, python, device)
        facts = self._known.get(key)
        if facts is None:
            facts = await self._try(workspace if device else None, python, Facts())
            if not facts.error:  # What is missing may be installed meanwhile.
                self._known[key] = facts
        return facts

    async def _try(self, workspace: Path | None, python: Path | None, facts: Facts) -> Facts:
        with tempfile.TemporaryDirectory(prefix="coderoom-probe-") as folder:
            place = workspace or Path(folder)
            spec = WallSpec(workspace=place, network=False, env={}, limits=Limits(), python=python)
            try:
                worker = await self._launch(spec, _PROBE, facts)
            except (SandboxUnavailable, OSError) as error:
                return Facts(error=str(error))
            try:
                answer = await _ask(worker)
            except OSError as error:
                said = await asyncio.to_thread(worker.describe_death)
                return Facts(error=said if isinstance(error, ConnectionError) else f"{error} {said}")
            finally:
                await worker.end()
        if "idmap" in answer and not facts.idmap:
            return await self._try(workspace, python, Facts(idmap=str(answer["idmap"])))
        return Facts(str(answer.get("error", "")), str(answer.get("nested", "")), facts.idmap)


def _status(workspace: Path) -> os.stat_result:
    try:
        return workspace.stat()
    except OSError as error:
        raise RequestError(f"The workspace {str(workspace)!r} cannot be used: {error.strerror}.") from error


async def _ask(worker: LocalWorker) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    worker.control.setblocking(False)
    question = {"boot": worker.boot, "nest": worker.boot["rooms"] == "namespaces"}
    await loop.sock_sendall(worker.control, json.dumps(question).encode())
    try:
        async with asyncio.timeout(_PATIENCE):
            said = await loop.sock_recv(worker.control, _LARGEST_ANSWER)
    except TimeoutError:
        raise OSError(f"It did not answer within {_PATIENCE:g} seconds.") from None
    if not said:
        raise ConnectionError("It ended at once.")
    answer = json.loads(said)
    if not isinstance(answer, dict):
        raise OSError("It answered nonsense.")
    return answer

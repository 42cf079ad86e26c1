"""NeMo Gym: a provider whose sandboxes are sessions of CodeRoom's.

    async with AsyncSandbox({"coderoom": {"limits": {"wall_seconds": 60}}}) as sandbox:
        await sandbox.start(SandboxSpec())
        await sandbox.exec("python3 --version")

NeMo Gym finds the provider `coderoom` by its entry point.
"""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from coderoom.errors import CodeRoomError, SandboxUnavailable
from coderoom.integrations.machine import MIB, Machine
from coderoom.integrations.tool import missing

try:
    from nemo_gym.sandbox.providers import (
        SandboxCreateError,
        SandboxExecResult,
        SandboxHandle,
        SandboxSpec,
        SandboxStatus,
    )
except ImportError as error:
    raise missing("NeMo Gym", "nemo-gym") from error

__all__ = ["CodeRoomProvider"]

_NAME: Final = "coderoom"
_BROKEN: Final = 125


class CodeRoomProvider:
    """Makes sandboxes for NeMo Gym: each has a session of its own, with its files and processes.

    A spec may have `env`, `workdir`, `metadata` and `memory_mib`. There are no images, entry points and GPUs, which are
    refused. The user of a command, and other resources of a spec, mean nothing here.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`.
    """

    name = _NAME

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._machines: dict[int | None, Machine] = {None: Machine(**options)}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a session; see `SandboxProvider`."""
        asked = {"image": spec.image, "entrypoint": spec.entrypoint, "gpu": spec.resources.gpu}
        if wrong := [name for name, value in asked.items() if value]:
            raise SandboxCreateError(f"CodeRoom's sandboxes have no {', '.join(wrong)}: leave it out of the spec.")
        handle = SandboxHandle(f"coderoom-{uuid4().hex[:12]}", _NAME, (self._machine(spec), spec))
        try:
            done = await self.exec(handle, f"mkdir -p -- {shlex.quote(spec.workdir or '.')}", cwd=".")
        except CodeRoomError as error:
            raise SandboxCreateError(str(error)) from error
        if done.return_code:
            raise SandboxCreateError(f"The sandbox cannot be started: {done.stderr}")
        return handle

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a shell command; see `SandboxProvider`. The user is the one of the sandbox."""
        machine, spec = self._raw(handle)
        where = {"cwd": cwd or spec.workdir, "env": {**spec.env, **(env or {})}, "conversation": handle.sandbox_id}
        try:
            done = await machine.run(["sh", "-c", command], timeout=timeout_s, **where)
        except SandboxUnavailable as error:
            return SandboxExecResult(None, str(error), _BROKEN, "sandbox")
        kind = "timeout" if done.timed_out else None
        return SandboxExecResult(done.stdout, done.stderr, done.exit_code, kind)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file into the session; see `SandboxProvider`."""
        data = await asyncio.to_thread(Path(source_path).read_bytes)
        await self._raw(handle)[0].write(target_path, data, conversation=handle.sandbox_id)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file of the session to the host; see `SandboxProvider`."""
        data = await self._raw(handle)[0].read(source_path, conversation=handle.sandbox_id)
        await asyncio.to_thread(Path(target_path).write_bytes, data)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Whether the session works; see `SandboxProvider`."""
        if handle.raw is None:
            return SandboxStatus.STOPPED
        done = await self.exec(handle, "true", cwd=".")
        return SandboxStatus.RUNNING if done.return_code == 0 else SandboxStatus.ERROR

    async def close(self, handle: SandboxHandle) -> None:
        """End the session, with all that it has started."""
        if handle.raw is not None:
            machine, _ = handle.raw
            handle.raw = None
            await machine.end(handle.sandbox_id)

    async def aclose(self) -> None:
        """End all sessions."""
        for machine in self._machines.values():
            await asyncio.to_thread(machine.close)

    def _machine(self, spec: SandboxSpec) -> Machine:
        memory = spec.resources.memory_mib
        if memory not in self._machines:
            limits = {**dict(self._options.get("limits") or {}), "memory_bytes": memory * MIB}
            self._machines[memory] = Machine(**{**self._options, "limits": limits})
        return self._machines[memory]

    def _raw(self, handle: SandboxHandle) -> tuple[Machine, SandboxSpec]:
        if handle.raw is None:
            raise RuntimeError(f"The sandbox {handle.sandbox_id!r} is closed.")
        machine, spec = handle.raw
        return machine, spec

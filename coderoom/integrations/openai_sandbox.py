"""OpenAI Agents SDK: a client whose sandboxes are sessions of CodeRoom's, for `SandboxAgent`.

    with CodeRoomSandboxClient() as client:
        config = RunConfig(sandbox=SandboxRunConfig(client=client))
        await Runner.run(agent, "...", run_config=config)

Each session of the SDK has files and processes of its own.
"""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any, Final, Literal, Self
from uuid import uuid4

from coderoom.errors import SandboxUnavailable
from coderoom.integrations.machine import Machine
from coderoom.integrations.tool import missing

try:
    from agents.sandbox import Manifest
    from agents.sandbox.errors import (
        ExecTimeoutError,
        ExecTransportError,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
    )
    from agents.sandbox.session import BaseSandboxClient, BaseSandboxSession, SandboxSession, SandboxSessionState
    from agents.sandbox.snapshot import resolve_snapshot
    from agents.sandbox.types import ExecResult
except ImportError as error:
    raise missing("The OpenAI Agents SDK", "openai-agents") from error

__all__ = ["CodeRoomSandboxClient", "CodeRoomSandboxSession"]

_TAR: Final = "/tmp/.workspace.tar"


class CodeRoomSessionState(SandboxSessionState):  # type: ignore[misc, unused-ignore]
    """What the SDK keeps of a session."""

    type: Literal["coderoom"] = "coderoom"


class CodeRoomSandboxSession(BaseSandboxSession):  # type: ignore[misc, unused-ignore]
    """A session of the SDK; made by `CodeRoomSandboxClient`."""

    def __init__(self, state: CodeRoomSessionState, machine: Machine, live: set[str]) -> None:
        self.state = state
        self._machine = machine
        self._live = live
        self._key = str(state.session_id)
        self._set_start_state_preserved(self._key in live)

    async def _prepare_backend_workspace(self) -> None:
        self._live.add(self._key)
        await self._run(["mkdir", "-p", "--", self.state.manifest.root], cwd=None)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        return await self._run([str(each) for each in command], cwd=self.state.manifest.root, timeout=timeout)

    async def _run(self, argv: list[str], cwd: str | None, timeout: float | None = None) -> ExecResult:
        env = await self.state.manifest.environment.resolve()
        try:
            done = await self._machine.run(argv, cwd=cwd, env=env, timeout=timeout, conversation=self._key)
        except SandboxUnavailable as error:
            raise ExecTransportError(command=argv, message=str(error), cause=error, retryable=False) from error
        if done.timed_out:
            raise ExecTimeoutError(command=argv, timeout_s=timeout)
        return ExecResult(stdout=done.stdout.encode(), stderr=done.stderr.encode(), exit_code=done.exit_code)

    async def read(self, path: Path | str, *, user: object = None) -> io.IOBase:
        """Read a file; see `BaseSandboxSession`."""
        return io.BytesIO(await self._read_bounded(Path(path), max_bytes=None))

    async def _read_bounded(self, path: Path, *, max_bytes: int | None) -> bytes:
        place = (await self._validate_path_access(path)).as_posix()
        try:
            return await self._machine.read(place, max_bytes, conversation=self._key)
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except (OSError, SandboxUnavailable) as error:
            raise WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path | str, data: io.IOBase, *, user: object = None) -> None:
        """Write a file; see `BaseSandboxSession`."""
        content = data.read()
        place = await self._validate_path_access(path, for_write=True)
        await self._write(place.as_posix(), content.encode() if isinstance(content, str) else bytes(content))

    async def _write(self, place: str, data: bytes) -> None:
        try:
            await self._machine.write(place, data, conversation=self._key)
        except (OSError, SandboxUnavailable) as error:
            raise WorkspaceArchiveWriteError(path=Path(place), cause=error) from error

    async def running(self) -> bool:
        """Whether the session has started and works."""
        try:
            return self._key in self._live and (await self._run(["true"], cwd=None)).ok()
        except ExecTransportError:
            return False

    async def persist_workspace(self) -> io.IOBase:
        """The files of the workspace as a tar archive."""
        left_out = [f"--exclude=./{each.as_posix()}" for each in self._persist_workspace_skip_relpaths()]
        root = self.state.manifest.root
        done = await self._run(["tar", *left_out, "-C", root, "-cf", _TAR, "."], cwd=None)
        if not done.ok():
            raise WorkspaceArchiveReadError(path=Path(root), context={"output": done.stderr.decode()})
        return io.BytesIO(await self._machine.read(_TAR, conversation=self._key))

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpack a tar archive in the workspace. It happens behind the wall, which keeps what the archive may hold."""
        root = self.state.manifest.root
        await self._write(_TAR, data.read())
        done = await self._run(["tar", "-C", root, "-xf", _TAR], cwd=None)
        if not done.ok():
            raise WorkspaceArchiveWriteError(path=Path(root), context={"output": done.stderr.decode()})

    async def _shutdown_backend(self) -> None:
        self._live.discard(self._key)
        await self._machine.end(self._key)


class CodeRoomSandboxClient(BaseSandboxClient[Any]):  # type: ignore[misc, unused-ignore]
    """Makes sandboxes for the SDK: sessions of one sandbox, which ends with `close`.

    A session that is resumed goes on if this client has it, else it begins with the files of its snapshot. There are no
    users, no terminals, no exposed ports and no mounts.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`.
    """

    backend_id = "coderoom"
    supports_default_options = True

    def __init__(self, **options: Any) -> None:
        self._machine = Machine(**options)
        self._live: set[str] = set()

    async def create(self, *, snapshot: Any = None, manifest: Manifest | None = None, options: Any = None) -> Any:
        """Make a session; see `BaseSandboxClient`."""
        manifest = self._validate_manifest_for_create(manifest if manifest is not None else Manifest())
        session = uuid4()
        found = resolve_snapshot(snapshot, str(session))
        return self._session(CodeRoomSessionState(session_id=session, manifest=manifest, snapshot=found))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End a session, with all that it has started."""
        await session.shutdown()
        return session

    async def resume(self, state: SandboxSessionState) -> Any:
        """Go on with a session; see `BaseSandboxClient`."""
        if not isinstance(state, CodeRoomSessionState):
            raise TypeError(f"The state is one of {state.type!r}, not of 'coderoom'.")
        state.assert_path_grants_rebound()
        return self._session(state)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Read a state from JSON; see `BaseSandboxClient`."""
        return self._deserialize_session_state_payload(payload, CodeRoomSessionState)

    def close(self) -> None:
        """End all sessions."""
        self._machine.close()

    def _session(self, state: CodeRoomSessionState) -> SandboxSession:
        return self._wrap_session(CodeRoomSandboxSession(state, self._machine, self._live))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

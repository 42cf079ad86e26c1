"""LangChain's Deep Agents: a backend whose commands and files are those of a sandbox.

    with CodeRoomBackend() as backend:
        agent = create_deep_agent(model, backend=backend)
        agent.invoke({"messages": [("user", "...")]}, {"configurable": {"thread_id": "1"}})

Each `thread_id` has a session of its own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final
from uuid import uuid4

from coderoom.integrations.machine import Finished, Machine
from coderoom.integrations.tool import missing

try:
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox
    from langgraph.config import get_config
except ImportError as error:
    raise missing("Deep Agents", "deepagents") from error

__all__ = ["CodeRoomBackend"]

_KINDS: Final = (
    ((FileNotFoundError, NotADirectoryError), "file_not_found"),
    (IsADirectoryError, "is_directory"),
    (PermissionError, "permission_denied"),
)


class CodeRoomBackend(BaseSandbox, AbstractContextManager["CodeRoomBackend"]):  # type: ignore[misc, unused-ignore]
    """Commands and files of a sandbox, in a session for each `thread_id` of LangGraph.

    Calls without a `thread_id`, or outside of an agent, share a session. Relative paths are those of `/workspace`. A
    broken sandbox ends the agent's run with `SandboxUnavailable`.

    Args:
        options: Arguments of `coderoom.sandbox.Sandbox`. A command without a timeout may take an hour, unless `limits`
            say otherwise.

    Raises:
        RequestError: The sandbox does not take such options.
    """

    def __init__(self, **options: Any) -> None:
        self._machine = Machine(**options)
        self._id = f"coderoom-{uuid4().hex[:12]}"

    @property
    def id(self) -> str:
        """The name of the sandbox."""
        return self._id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command; see `SandboxBackendProtocol`."""
        return _response(self._machine.wait(self._run(command, timeout, _thread())))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """As `execute`; a caller that is cancelled ends the command."""
        return _response(await self._run(command, timeout, _thread()))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files; see `BackendProtocol`."""
        thread, answers = _thread(), []
        for path, data in files:
            try:
                self._machine.wait(self._machine.write(_absolute(path), data, conversation=thread))
                answers.append(FileUploadResponse(path=path))
            except (OSError, ValueError) as error:
                answers.append(FileUploadResponse(path=path, error=_kind_of(error)))
        return answers

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files; see `BackendProtocol`."""
        thread, answers = _thread(), []
        for path in paths:
            try:
                data = self._machine.wait(self._machine.read(_absolute(path), conversation=thread))
                answers.append(FileDownloadResponse(path=path, content=data))
            except (OSError, ValueError) as error:
                answers.append(FileDownloadResponse(path=path, error=_kind_of(error)))
        return answers

    def close(self) -> None:
        """End all sessions."""
        self._machine.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _run(self, command: str, timeout: int | None, thread: str | None) -> Finished:
        return await self._machine.run(["sh", "-c", command], timeout=timeout or None, conversation=thread)


def _thread() -> str | None:
    try:
        thread = get_config().get("configurable", {}).get("thread_id")
    except RuntimeError:  # Not in an agent.
        return None
    return None if thread is None else str(thread)


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise ValueError(path)
    return path


def _kind_of(error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return "invalid_path"
    return next((name for kinds, name in _KINDS if isinstance(error, kinds)), str(error))


def _response(done: Finished) -> ExecuteResponse:
    return ExecuteResponse(output=done.output, exit_code=done.exit_code, truncated=done.truncated)

"""The wall `docker`: a container of a Docker engine on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coderoom._util.processes import is_orphan
from coderoom.errors import CodeRoomError, SandboxUnavailable
from coderoom.sandbox import guest
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.contracts import WallReport
from coderoom.sandbox.walls.docker.config import (
    DEFAULT_IMAGE,
    LABEL,
    DockerOptions,
    Meeting,
    container_config,
    memory_of,
    shown_files,
    tenant_for,
    visible_code,
)
from coderoom.sandbox.walls.docker.engine import Container, DockerWorker, Engine, connect, is_missing, reason
from coderoom.sandbox.walls.layout import WORKSPACE
from coderoom.sandbox.walls.private import check_readable, check_workspace

_OLDEST_PYTHON = (3, 8)
_PATIENCE = 30.0
_PROBE_SECONDS = 5.0
_CONTROL_BUFFER = 1 << 20


class DockerWall:
    """A container without network and capabilities, and with nothing of the host but the workspace.

    `code` is the folder with the worker's code.
    """

    name = "docker"
    code = Path(guest.__file__).parent
    sessions_share_network = True

    async def probe(self) -> WallReport:
        """Try whether an engine has the image."""
        try:
            async with asyncio.timeout(2 * _PROBE_SECONDS):
                return await asyncio.to_thread(self._probe)
        except TimeoutError:
            return WallReport(self.name, False, "The Docker engine does not answer in time.", "Restart it.")
        except CodeRoomError as error:
            return WallReport(self.name, False, str(error))
        except Exception as error:  # docker-py raises its own errors and those of requests and urllib3.
            return WallReport(self.name, False, f"The Docker engine failed: {reason(error)}")

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Refuse wrong options."""
        DockerOptions.of(options)

    async def start(self, spec: SandboxConfig) -> DockerWorker:
        """Start a worker in a container of its own; see `ProbedWall.start`."""
        launch = _Launch(spec, DockerOptions.of(spec.options), self.code)
        running = asyncio.ensure_future(asyncio.to_thread(launch.run))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The thread undoes what it has done.
            launch.cancelled.set()
            running.add_done_callback(_abandon)
            raise

    def _probe(self) -> WallReport:
        with contextlib.closing(connect(_PROBE_SECONDS)) as engine:
            lacking = engine.lacks()
            detail = engine.describe() + (f"; without {', '.join(lacking)}" if lacking else "")
            try:
                engine.client.inspect_image(DEFAULT_IMAGE)
            except Exception as error:  # As above.
                return WallReport(self.name, False, f"{detail}; {reason(error)}", f"docker pull {DEFAULT_IMAGE}")
            return WallReport(self.name, True, f"{detail}; image {DEFAULT_IMAGE!r}")


class _Launch:
    """Makes a container and waits for its worker, in a thread; `cancelled` is set when the start was cancelled."""

    def __init__(self, spec: SandboxConfig, options: DockerOptions, code: Path) -> None:
        self._spec = spec
        self._options = options
        self._code = code
        self.cancelled = threading.Event()

    def run(self) -> DockerWorker:
        if self._spec.workspace is not None:
            check_workspace(self._spec.workspace.resolve())
        for path in self._spec.readable:
            check_readable(path)
        with contextlib.ExitStack() as undo:
            engine = connect()
            undo.callback(engine.close)
            try:
                return self._run(engine, undo)
            except CodeRoomError:
                raise
            except Exception as error:  # docker-py raises its own errors and those of requests and urllib3.
                raise SandboxUnavailable(f"The Docker engine failed: {reason(error)}.{_hint(reason(error))}") from error

    def _run(self, engine: Engine, undo: contextlib.ExitStack) -> DockerWorker:
        lacking = engine.lacks()
        if lacking and self._options.strict:
            raise SandboxUnavailable(
                f"The Docker engine ({engine.describe()}) leaves out {', '.join(lacking)}: the option 'strict' is set."
            )
        # Remove containers that earlier processes left behind. Other processes may do the same; what is left is removed
        # by a later start.
        with contextlib.suppress(Exception):
            for found in engine.client.containers(all=True, filters={"label": LABEL}):
                if is_orphan(found["Labels"].get(LABEL, "")):
                    with contextlib.suppress(Exception):
                        engine.client.remove_container(found["Id"], force=True, v=True)
        self._have_image(engine)
        container, control = self._meet(engine, undo)
        undo.callback(control.close)
        control.settimeout(_PATIENCE)
        try:
            answer = json.loads(control.recv(65_536))
            version, writable = tuple(answer["python"]), answer["writable"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._no_worker("did not answer", container) from error
        if version < _OLDEST_PYTHON:
            raise SandboxUnavailable(
                f"The image {self._options.image!r} has Python {'.'.join(map(str, version))}; the sandbox needs 3.8 or "
                "later. Name another image in the wall's option 'image'."
            )
        if not writable:
            raise SandboxUnavailable(
                f"Code in the container cannot write into the workspace {str(self._spec.workspace)!r}. Check that its "
                "owner can, and that the engine sees the same folders as this process."
            )
        control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CONTROL_BUFFER)
        control.setblocking(False)
        self._check_wanted()
        spec = self._spec
        boot = {
            "identity": None,
            "environment": dict(spec.env),
            "workspace": WORKSPACE,
            "rooms": "plain",
            # A container has its own network and no socket of the host.
            "lockdown": {"own_pid_only": True, "local_sockets": True},
            "own_network": True,
            "forks": True,
        }
        return DockerWorker(control, boot, container, memory_of(spec, self._options), undo.pop_all().close)

    def _meet(self, engine: Engine, undo: contextlib.ExitStack) -> tuple[Container, socket.socket]:
        code = visible_code(self._code, undo)
        with contextlib.closing(Meeting()) as meeting:
            mount = meeting.mount if engine.sees_mounts else None
            tenant = tenant_for(self._spec.workspace, mount, engine.remaps_users, engine.is_rootless, undo)
            files = shown_files(self._spec, undo)
            config = container_config(engine, self._spec, self._options, tenant, meeting.folder, code, files)
            self._check_wanted()
            # Before the start, so that no output is missed.
            container = Container(engine, config)
            undo.callback(container.close)
            undo.callback(container.remove)
            self._check_wanted()
            container.start()
            meeting.listener.setblocking(False)
            poll = select.poll()
            poll.register(meeting.listener, select.POLLIN)
            poll.register(container, select.POLLIN)
            deadline = time.monotonic() + _PATIENCE
            while time.monotonic() < deadline:
                self._check_wanted()
                ready = {fd for fd, _ in poll.poll(100)}
                if meeting.listener.fileno() in ready:
                    return container, meeting.listener.accept()[0]
                if container.fileno() in ready and container.ended():
                    raise self._no_worker(f"ended with exit code {container.exit_code(_PATIENCE)}", container)
            raise self._no_worker(f"did not connect to its host within {_PATIENCE:g} seconds", container)

    def _check_wanted(self) -> None:
        if self.cancelled.is_set():
            raise SandboxUnavailable("The start was cancelled.")

    def _have_image(self, engine: Engine) -> None:
        image = self._options.image
        try:
            engine.client.inspect_image(image)
        except Exception as error:  # As above.
            if not is_missing(error):
                raise
        else:
            return
        missing = f"The image {image!r} is not on this machine"
        remedy = f"Get it (docker pull {image}) or make it, or name another one in the wall's option 'image'."
        if not self._options.pull:
            raise SandboxUnavailable(f"{missing}. {remedy}")
        try:
            for said in engine.client.pull(image, stream=True, decode=True):
                self._check_wanted()
                if "error" in said:
                    raise OSError(said["error"])
        except CodeRoomError:
            raise
        except Exception as error:  # As above.
            raise SandboxUnavailable(f"{missing} and could not be pulled ({reason(error)}). {remedy}") from error

    def _no_worker(self, what: str, container: Container) -> SandboxUnavailable:
        written, runtime = container.written(), self._options.runtime
        parts = [
            f"The worker in a container of the image {self._options.image!r} {what}.",
            f"It wrote: {written}" if written else "",
            f"The runtime {runtime!r} may be the reason." if runtime else "",
        ]
        return SandboxUnavailable(" ".join(filter(None, parts)))


def _abandon(task: asyncio.Task[DockerWorker]) -> None:
    # The start may have finished before it saw the cancellation.
    if not task.cancelled() and task.exception() is None:
        threading.Thread(target=task.result().kill).start()


def _hint(said: str) -> str:
    if "executable file not found" in said or "no such file or directory" in said:
        return " The sandbox needs an image with Python 3.8 or later: name one in the wall's option 'image'."
    if "bind source path does not exist" in said:
        return " The engine does not see this process's folders: is one of them in a container, or a snap?"
    return ""

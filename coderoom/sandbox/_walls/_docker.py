"""The wall that is a container of a Docker engine on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coderoom.errors import CodeRoomError, RequestError, SandboxUnavailable
from coderoom.sandbox import _inside
from coderoom.sandbox._layout import HOSTNAME, INSIDE, WORKSPACE
from coderoom.sandbox._walls import _owned_folder, _owner
from coderoom.sandbox._walls._base import StartedWorker, WallReport, WallSpec
from coderoom.sandbox._walls._docker_container import Container, DockerWorker
from coderoom.sandbox._walls._docker_engine import Engine, connect, is_missing, reason
from coderoom.sandbox._walls._docker_folders import Meeting, Tenant, check_folders, tenant_for, visible_code
from coderoom.sandbox._walls._docker_options import DockerOptions

__all__ = ["LABEL", "DockerWall"]

LABEL = "coderoom"

_CONTROL = f"{INSIDE}/control"
_CODE = f"{INSIDE}/_inside"
_OLDEST_PYTHON = (3, 8)
_OWN_MEMORY = 256 * 1024**2
_OWN_PROCESSES = 64
_SESSIONS = 4
_OPEN_FILES = 8192
_PATIENCE = 30.0
_LARGEST_HELLO = 180_000
_PROBE_SECONDS = 5.0


class DockerWall:
    """Keeps code in a container without network, capabilities or anything of the host but its workspace.

    Args:
        code: The folder with the worker's code; by default CodeRoom's own.
        **options: What is to be used if a `WallSpec` says nothing else: see `DockerOptions`.

    Raises:
        RequestError: An option is wrong.
    """

    name = "docker"

    def __init__(self, *, code: Path | None = None, **options: Any) -> None:
        self._code = code if code is not None else Path(_inside.__file__).parent
        self._options = options
        self._defaults = DockerOptions.of(options)

    async def probe(self) -> WallReport:
        """Try whether there is an engine with the image."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(self._probe), 2 * _PROBE_SECONDS)
        except (CodeRoomError, TimeoutError) as error:
            detail, _, remedy = str(error).partition(". ")
            return WallReport(self.name, False, detail or "The Docker engine does not answer in time.", remedy)

    async def start(self, spec: WallSpec) -> StartedWorker:
        """Start a worker in a container of its own.

        Raises:
            SandboxUnavailable: There is no engine, no image, or no Python in it that could be used.
            RequestError: An option, or a folder, is wrong.
            MissingDependencyError: The package `docker` is not installed.
        """
        launch = _Launch(spec, DockerOptions.of({**self._options, **spec.options}), self._code)
        running = asyncio.ensure_future(asyncio.to_thread(launch.run))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The thread undoes what it has done by then.
            launch.cancelled.set()
            running.add_done_callback(_abandon)
            raise

    def _probe(self) -> WallReport:
        engine = connect(_PROBE_SECONDS)
        image = self._defaults.image
        try:
            lacking = engine.lacks()
            detail = engine.describe() + (f"; without {', '.join(lacking)}" if lacking else "")
            if lacking and self._defaults.strict:
                return WallReport(self.name, False, detail, "Use an engine that can do this, or leave out 'strict'.")
            try:
                engine.client.inspect_image(image)
            except Exception as error:  # The engine's errors and the connection's.
                return WallReport(
                    self.name, False, f"{detail}; image {image!r}: {reason(error)}", f"docker pull {image}"
                )
            return WallReport(self.name, True, f"{detail}; image {image!r}")
        finally:
            engine.close()


class _Launch:
    """Makes a container and waits for its worker, in a thread.

    Attributes:
        cancelled: Set when nobody wants it any more.
    """

    def __init__(self, spec: WallSpec, options: DockerOptions, code: Path) -> None:
        self._spec = spec
        self._options = options
        self._code = code
        self.cancelled = threading.Event()

    def run(self) -> DockerWorker:
        spec = self._spec
        check_folders(spec.workspace, tuple(spec.readable))
        hello = json.dumps({"env": dict(spec.env)}).encode()
        if len(hello) > _LARGEST_HELLO:
            raise RequestError(f"The environment is too large for the wall 'docker' ({len(hello)} bytes as JSON).")
        with contextlib.ExitStack() as undo:
            engine = connect()
            undo.callback(engine.close)
            try:
                return self._run(engine, hello, undo)
            except CodeRoomError:
                raise
            except Exception as error:  # docker-py lets through those of its own, of requests and of urllib3.
                raise SandboxUnavailable(f"The Docker engine failed: {reason(error)}.{_hint(reason(error))}") from error

    def _run(self, engine: Engine, hello: bytes, undo: contextlib.ExitStack) -> DockerWorker:
        lacking = engine.lacks()
        if lacking and self._options.strict:
            raise SandboxUnavailable(
                f"The Docker engine ({engine.describe()}) leaves out {', '.join(lacking)}: the option 'strict' is set."
            )
        _sweep(engine)
        self._have_image(engine)
        code, copy = visible_code(self._code)
        if copy is not None:
            undo.callback(shutil.rmtree, copy, ignore_errors=True)
        with contextlib.closing(Meeting()) as meeting:
            security = engine.security
            tenant = tenant_for(self._spec.workspace, meeting, engine.remaps_users, "rootless" in security)
            if tenant.how == "given" and tenant.workspace is not None:
                undo.callback(_owned_folder.give_back, tenant.workspace, tenant.uid, os.geteuid(), os.getegid())
            self._check_wanted()
            container = self._create(engine, tenant, meeting, code)
            undo.callback(container.close)
            undo.callback(container.remove)
            self._check_wanted()
            container.start()
            control = self._accept(meeting.listener, container)
        undo.callback(control.close)
        self._greet(control, container, hello)
        self._check_wanted()
        # What is left to be undone is the worker's from now on; it ends the container itself.
        memory = self._memory()
        boot = {"identity": None, "root": None, "rooms": "plain", "workspace": WORKSPACE}
        return DockerWorker(control, boot, container, memory, undo.pop_all().close)

    def _check_wanted(self) -> None:
        if self.cancelled.is_set():
            raise SandboxUnavailable("The start was cancelled.")

    def _have_image(self, engine: Engine) -> None:
        image = self._options.image
        try:
            engine.client.inspect_image(image)
        except Exception as error:  # The engine's errors and the connection's.
            if not is_missing(error):
                raise
        else:
            return
        missing = f"The image {image!r} is not on this machine"
        remedy = f"Get it (docker pull {image}) or make it, or name another one in the wall's option 'image'."
        if not self._options.pull:
            raise SandboxUnavailable(f"{missing}. {remedy}")
        name, tag = (image, None) if "@" in image else _split_tag(image)
        try:
            for said in engine.client.pull(name, tag=tag, stream=True, decode=True):
                self._check_wanted()
                if "error" in said:
                    raise OSError(said["error"])
        except CodeRoomError:
            raise
        except Exception as error:  # As above.
            raise SandboxUnavailable(f"{missing} and could not be pulled ({reason(error)}). {remedy}") from error

    def _memory(self) -> int:
        limits = self._spec.limits
        in_memory = limits.disk_bytes * (2 if self._spec.workspace is None else 1)
        return self._options.memory or limits.memory_bytes + in_memory + _OWN_MEMORY

    def _create(self, engine: Engine, tenant: Tenant, meeting: Meeting, code: Path) -> Container:
        client = engine.client
        python = str(self._spec.python or "python3")
        made = client.create_container(
            self._options.image,
            name=f"coderoom-{os.getpid()}-{uuid.uuid4().hex[:12]}",
            entrypoint=[python, "-I", "-S", f"{_CODE}/connect.py"],
            command=[f"{_CONTROL}/socket", WORKSPACE],
            user=f"{tenant.uid}:{tenant.gid}",
            working_dir="/",
            hostname=HOSTNAME,
            labels={LABEL: _owner.ours()},
            healthcheck={"test": ["NONE"]},
            host_config=client.create_host_config(**self._host_config(engine, tenant, meeting, code)),
        )
        try:
            return Container(engine, made["Id"])
        except BaseException:
            client.remove_container(made["Id"], force=True, v=True)
            raise

    def _host_config(self, engine: Engine, tenant: Tenant, meeting: Meeting, code: Path) -> dict[str, Any]:
        limits, options = self._spec.limits, self._options
        memory = self._memory()
        in_memory = f"rw,exec,nosuid,nodev,size={limits.disk_bytes}"
        tmpfs = {"/tmp": f"{in_memory},mode=1777"}
        if tenant.workspace is None:
            tmpfs[WORKSPACE] = f"{in_memory},mode=0700,uid={tenant.uid},gid={tenant.gid}"
        config: dict[str, Any] = {
            "auto_remove": True,
            "cap_drop": ["ALL"],
            "cgroupns": "private",
            "ipc_mode": "private",
            "log_config": {"Type": "none"},
            "mem_limit": memory,
            "memswap_limit": memory,
            "mounts": list(self._mounts(tenant, meeting, code)),
            "nano_cpus": int(min(options.cpus, engine.info.get("NCPU") or options.cpus) * 1_000_000_000),
            "network_mode": "bridge" if self._spec.network else "none",
            "pids_limit": options.processes or limits.processes * _SESSIONS + _OWN_PROCESSES,
            "read_only": True,
            "security_opt": ["no-new-privileges"],
            "shm_size": limits.disk_bytes,
            "tmpfs": tmpfs,
            "ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": _OPEN_FILES, "Hard": _OPEN_FILES},
            ],
        }
        if "selinux" in engine.security:
            # Its rules forbid containers to connect to any socket of the host.
            config["security_opt"].append("label=disable")
        if tenant.host_users:
            config["userns_mode"] = "host"
        if options.runtime is not None:
            config["runtime"] = options.runtime
        if options.gpus is not None:
            config["device_requests"] = [_gpus(options.gpus)]
        return config

    def _mounts(self, tenant: Tenant, meeting: Meeting, code: Path) -> Any:
        shared = [(code, _CODE, True), (meeting.folder, _CONTROL, True)]
        if tenant.workspace is not None:
            shared.append((tenant.workspace.resolve(), WORKSPACE, False))
        shared += [(path.resolve(), str(path.absolute()), True) for path in self._spec.readable]
        for source, target, read_only in shared:
            yield {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}

    def _accept(self, listener: socket.socket, container: Container) -> socket.socket:
        listener.setblocking(False)
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(container, select.POLLIN)
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            self._check_wanted()
            ready = {fd for fd, _ in poll.poll(100)}
            if listener.fileno() in ready:
                return listener.accept()[0]
            if container.fileno() in ready and container.ended():
                raise self._no_worker(f"ended with exit code {container.exit_code()}", container)
        raise self._no_worker(f"did not connect to its host within {_PATIENCE:g} seconds", container)

    def _greet(self, control: socket.socket, container: Container, hello: bytes) -> None:
        control.settimeout(_PATIENCE)
        try:
            found = json.loads(control.recv(65_536))
            version = tuple(found["python"])
            writable = found["writable"]
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
        control.send(hello)
        control.setblocking(False)

    def _no_worker(self, what: str, container: Container) -> SandboxUnavailable:
        written = container.written()
        return SandboxUnavailable(
            f"The worker in a container of the image {self._options.image!r} {what}."
            + (f" It wrote: {written}" if written else "")
            + (f" The runtime {self._options.runtime!r} may be the reason." if self._options.runtime else "")
        )


def _abandon(task: asyncio.Task[DockerWorker]) -> None:
    # Unless it had done everything by then.
    if not task.cancelled() and task.exception() is None:
        threading.Thread(target=task.result().kill).start()


def _sweep(engine: Engine) -> None:
    """Remove what earlier processes had no time to remove."""
    # Others may be at the same; whatever is left will be met again.
    with contextlib.suppress(Exception):
        for found in engine.client.containers(all=True, filters={"label": LABEL}):
            if _owner.is_orphan(found["Labels"].get(LABEL, "")):
                with contextlib.suppress(Exception):
                    engine.client.remove_container(found["Id"], force=True, v=True)


def _split_tag(image: str) -> tuple[str, str]:
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "latest")


def _gpus(wanted: str | int | list[str]) -> Mapping[str, Any]:
    request: dict[str, Any] = {"Driver": "", "Capabilities": [["gpu"]], "Options": {}, "Count": 0, "DeviceIDs": []}
    if isinstance(wanted, list):
        request["DeviceIDs"] = wanted
    else:
        request["Count"] = -1 if wanted == "all" else wanted
    return request


def _hint(said: str) -> str:
    if "executable file not found" in said or "no such file or directory" in said:
        return " The sandbox needs an image with Python 3.8 or later: name one in the wall's option 'image'."
    if "bind source path does not exist" in said:
        return " The engine does not see this process's folders: is one of them in a container, or a snap?"
    return ""

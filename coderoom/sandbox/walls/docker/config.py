"""The options of the wall `docker`, and the configuration of its containers: users, shared folders and limits."""

from __future__ import annotations

import contextlib
import difflib
import os
import random
import re
import shutil
import socket
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from coderoom._util.processes import owner_mark
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.guest.isolation.boot import SOCKET_BYTES
from coderoom.sandbox.walls.docker.engine import Engine
from coderoom.sandbox.walls.layout import HOSTNAME, INSIDE, WORKSPACE, files_for_proxy, guarded_paths
from coderoom.sandbox.walls.local import copy_for_all
from coderoom.sandbox.walls.workspace import chown_workspace, mounted_for, unmount

_FEW_USERS = (10_000, 60_000)  # Known to every engine that remaps users.
_NOBODY = (0x7000_0000, 0x7FFF_FFFF)  # Used by no machine.

DEFAULT_IMAGE = "python:3-slim"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {unit: 1024**power for power, unit in enumerate("bkmgt")}
LABEL = "coderoom"
_CONTROL = f"{INSIDE}/control"
_CODE = f"{INSIDE}/guest"
_OWN_MEMORY = 256 * 1024**2
_OWN_PROCESSES = 64
_SESSIONS = 4
_OPEN_FILES = 8192
# The worker, which is not root, makes the sockets of the proxy; and those of code must not grow to what nobody counts.
_FOR_PROXY = {
    "net.ipv4.ip_unprivileged_port_start": "0",
    **dict.fromkeys(("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"), f"4096 65536 {SOCKET_BYTES}"),
}


@dataclass(frozen=True)
class Tenant:
    """The user and group of the code, never 0, and the folder to mount as its workspace; `None`: one in memory.

    With `host_users`, the engine must not remap users.
    """

    uid: int
    gid: int
    workspace: Path | None = None
    host_users: bool = False


class Meeting:
    """A private folder with the socket at which the host waits for its worker.

    No other user of this machine can enter the folder; the container sees only the part with the socket.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="coderoom-"))
        self.folder = self._folder / "control"
        self.mount = self._folder / "workspace"
        self.folder.mkdir()
        self.folder.chmod(0o711)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = self.folder / "socket"
        try:
            self.listener.bind(str(path))
            path.chmod(0o666)
            self.listener.listen(1)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the folder; the container keeps what it has mounted."""
        self.listener.close()
        unmount(self.mount)
        # Never recursively: the workspace may still be mounted here.
        with contextlib.suppress(OSError):
            (self.folder / "socket").unlink(missing_ok=True)
        for folder in (self.folder, self.mount, self._folder):
            with contextlib.suppress(OSError):
                folder.rmdir()


def tenant_for(
    workspace: Path | None, mount: Path | None, remapped: bool, rootless: bool, undo: contextlib.ExitStack
) -> Tenant:
    """Choose a user for the code, so that what it writes belongs to the workspace's owner.

    `mount` is where the workspace can be mounted once more; `None` if the engine would not see that. `rootless` engines
    always remap users. `undo` gives a workspace back that had to get another owner.
    """
    nobody = random.SystemRandom().randint(*(_FEW_USERS if remapped else _NOBODY))
    if workspace is None:
        return Tenant(nobody, nobody)
    owner = workspace.stat()
    open_to_all = owner.st_mode & stat.S_IRWXO == stat.S_IRWXO
    if remapped and (open_to_all or rootless):
        if not open_to_all:
            raise SandboxUnavailable(
                f"Code in a container of a rootless Docker engine cannot write into the workspace {str(workspace)!r}: "
                "its owner is the container's root, which code never is. Make it writable for all (chmod a+rwx), or "
                "use the wall 'bubblewrap', which needs no more rights than such an engine."
            )
        return Tenant(nobody, nobody, workspace)
    left_behind = owner.st_uid in range(_NOBODY[0], _NOBODY[1] + 1)
    if owner.st_uid and not (left_behind and os.geteuid() == 0):
        return Tenant(owner.st_uid, owner.st_gid or owner.st_uid, workspace, host_users=remapped)
    if os.geteuid():
        if open_to_all:
            return Tenant(nobody, nobody, workspace, host_users=remapped)
        raise _not_for_code(workspace)
    if mount is not None and owner.st_uid == 0:
        try:
            mount.mkdir()
            mounted_for(workspace, mount, nobody, nobody)
            return Tenant(nobody, nobody, mount, remapped)
        except OSError:
            pass  # An old kernel, or a file system that cannot do it.
    identity = chown_workspace(workspace, undo)
    if identity is None:
        raise _not_for_code(workspace)
    return Tenant(*identity, workspace, remapped)


def _not_for_code(workspace: Path) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"The workspace {str(workspace)!r} belongs to root, and code is never root: use a folder of your own."
    )


def visible_code(source: Path, undo: contextlib.ExitStack) -> Path:
    """A folder of the worker's code that every user can read; if it is a copy, `undo` removes it."""
    folders = [path for path in (source, *source.rglob("*")) if path.is_dir()]
    if all(path.stat().st_mode & 0o005 == 0o005 for path in folders) and all(
        path.stat().st_mode & 0o004 for path in source.rglob("*.py")
    ):
        return source
    copy = Path(tempfile.mkdtemp(prefix="coderoom-"))
    undo.callback(shutil.rmtree, copy, ignore_errors=True)
    return copy_for_all(source, copy)


def shown_files(spec: SandboxConfig, undo: contextlib.ExitStack) -> dict[str, Path]:
    """The files of this machine that a container shows, by their paths inside; `undo` removes them."""
    if not spec.proxied:
        return {}
    folder = Path(tempfile.mkdtemp(prefix="coderoom-"))
    undo.callback(shutil.rmtree, folder, ignore_errors=True)
    found = {}
    for number, (place, text) in enumerate(files_for_proxy(spec).items()):
        found[place] = folder / str(number)
        found[place].write_text(text, encoding="utf-8")
        found[place].chmod(0o644)
    return found


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size is a number of bytes, or for instance '512m' or '2g'")
    return int(float(match[1]) * _UNITS[match[2].lower() or "b"])


class DockerOptions(BaseModel):
    """The options of the wall `docker`.

    The limits are those of the container, which all sessions of a sandbox share.

    Attributes:
        image: The image, which needs Python 3.8 or later as `python3`.
        pull: Whether to pull an image that is not on this machine.
        memory: Its memory in bytes, or for instance `"2g"`; `None`: what one session may use, files in memory included,
            and 256 MiB for the worker.
        cpus: Its number of processors.
        processes: Its processes and threads; `None`: those of four sessions, and 64 for the worker.
        gpus: The GPUs that code may use: `"all"`, a number, or their ids; `None`: none.
        runtime: The engine's runtime, if it is not the default one. One with its own kernel (gVisor, Kata Containers)
            cannot be used.
        strict: Refuse an engine that lacks part of the wall, for instance a limit that its kernel does not support.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: str = Field(default=DEFAULT_IMAGE, min_length=1)
    pull: bool = True
    memory: Annotated[int | None, BeforeValidator(_bytes)] = Field(default=None, ge=32 * 1024**2)
    cpus: float = Field(default=2, gt=0, allow_inf_nan=False)
    processes: int | None = Field(default=None, ge=8)
    gpus: Literal["all"] | Annotated[int, Field(ge=1, strict=True)] | list[str] | None = None
    runtime: str | None = Field(default=None, min_length=1)
    strict: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DockerOptions:
        """Check options; the error lists all that are unknown or wrong."""
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            # One message for each option, even if each of several types refused it.
            found = {str(mistake["loc"][0]): mistake for mistake in reversed(error.errors())}
            said = [_mistake(name, found[name], options[name]) for name in options if name in found]
            raise RequestError(f"Wrong options of the wall 'docker': {'; '.join(said)}.") from error


def _mistake(name: str, found: Mapping[str, Any], value: Any) -> str:
    if found["type"] != "extra_forbidden":
        return f"{name!r} cannot be {value!r} ({found['msg'].removeprefix('Value error, ')})"
    known = sorted(DockerOptions.model_fields)
    near = difflib.get_close_matches(name, known, n=1)
    return f"there is no {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}")


def container_config(
    engine: Engine,
    spec: SandboxConfig,
    options: DockerOptions,
    tenant: Tenant,
    meeting: Path,
    code: Path,
    files: Mapping[str, Path],
) -> dict[str, Any]:
    """The arguments of `create_container`.

    `meeting` has the host's socket, `code` the worker's code; `files` are shown by their paths inside.
    """
    shared = [(code, _CODE, True), (meeting, _CONTROL, True), *_workspace(spec, tenant)]
    shared += [(path, place, True) for place, path in files.items()]
    shared += [(path.resolve(), str(path.absolute()), True) for path in spec.readable]
    mounts = [
        {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}
        for source, target, read_only in shared
    ]
    size, memory = spec.limits.disk_bytes, memory_of(spec, options)
    in_memory = f"rw,exec,nosuid,nodev,size={size}"
    folders = {"/tmp": f"{in_memory},mode=1777"}
    if tenant.workspace is None:
        folders[WORKSPACE] = f"{in_memory},mode=0700,uid={tenant.uid},gid={tenant.gid}"
    security = ["no-new-privileges"]
    if "selinux" in engine.security:
        # SELinux forbids containers to connect to sockets of the host.
        security.append("label=disable")
    more: dict[str, Any] = {"security_opt": security}
    if tenant.host_users:
        more["userns_mode"] = "host"
    if options.runtime is not None:
        more["runtime"] = options.runtime
    if spec.proxied:
        more["sysctls"] = _FOR_PROXY
    if options.gpus is not None:
        from docker.types import DeviceRequest  # type: ignore[import-untyped]

        ids = options.gpus if isinstance(options.gpus, list) else None
        count = None if ids else -1 if options.gpus == "all" else options.gpus
        more["device_requests"] = [DeviceRequest(count=count, device_ids=ids, capabilities=[["gpu"]])]
    return {
        "image": options.image,
        "name": f"coderoom-{os.getpid()}-{uuid.uuid4().hex[:12]}",
        "entrypoint": [str(spec.python or "python3"), "-I", "-S", f"{_CODE}/main.py"],
        "command": [f"{_CONTROL}/socket", WORKSPACE],
        "user": f"{tenant.uid}:{tenant.gid}",
        "working_dir": "/",
        "hostname": HOSTNAME,
        "labels": {LABEL: owner_mark()},
        "healthcheck": {"test": ["NONE"]},
        "host_config": engine.client.create_host_config(
            mounts=mounts,
            tmpfs=folders,
            shm_size=size,
            network_mode="bridge" if spec.host_network else "none",
            auto_remove=True,
            cap_drop=["ALL"],
            cgroupns="private",
            ipc_mode="private",
            log_config={"Type": "none"},  # Otherwise its standard error would fill the host's disk.
            read_only=True,
            mem_limit=memory,
            memswap_limit=memory,
            nano_cpus=int(min(options.cpus, engine.info.get("NCPU") or options.cpus) * 1_000_000_000),
            pids_limit=options.processes or spec.limits.processes * _SESSIONS + _OWN_PROCESSES,
            ulimits=[
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": _OPEN_FILES, "Hard": _OPEN_FILES},
            ],
            **more,
        ),
    }


def memory_of(spec: SandboxConfig, options: DockerOptions) -> int:
    """The memory limit of a container, files in memory included."""
    in_memory = spec.limits.disk_bytes * (2 if spec.workspace is None else 1)
    return options.memory or spec.limits.memory_bytes + in_memory + _OWN_MEMORY


def _workspace(spec: SandboxConfig, tenant: Tenant) -> Iterator[tuple[Path, str, bool]]:
    if spec.workspace is None or tenant.workspace is None:
        return
    yield tenant.workspace.resolve(), WORKSPACE, False
    host = (Path(sys.prefix), Path(sys.base_prefix))
    for path, writable in guarded_paths(spec.workspace.resolve(), host):
        yield tenant.workspace.resolve() / path, f"{WORKSPACE}/{path}", not writable

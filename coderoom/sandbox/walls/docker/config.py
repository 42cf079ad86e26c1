"""The options of the wall `docker`, and the configuration of its containers."""

from __future__ import annotations

import difflib
import os
import re
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from coderoom._util import owner
from coderoom.errors import RequestError
from coderoom.sandbox.walls.base import WallSpec
from coderoom.sandbox.walls.docker.engine import Engine
from coderoom.sandbox.walls.docker.folders import Tenant
from coderoom.sandbox.walls.layout import HOSTNAME, INSIDE, WORKSPACE, guarded_paths

__all__ = ["DEFAULT_IMAGE", "LABEL", "DockerOptions", "container_config", "memory_of"]

DEFAULT_IMAGE = "python:3-slim"

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {unit: 1024**power for power, unit in enumerate("bkmgt")}


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
        """Check options.

        Raises:
            RequestError: Options are unknown or wrong; the message lists all of them.
        """
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


LABEL = "coderoom"

_CONTROL = f"{INSIDE}/control"
_CODE = f"{INSIDE}/guest"
_OWN_MEMORY = 256 * 1024**2
_OWN_PROCESSES = 64
_SESSIONS = 4
_OPEN_FILES = 8192
_NETWORKS = {True: "bridge", False: "none"}


def container_config(
    engine: Engine, spec: WallSpec, options: DockerOptions, tenant: Tenant, meeting: Path, code: Path
) -> dict[str, Any]:
    """The arguments of `create_container`.

    Args:
        engine: The engine that will make the container.
        spec: The sandbox's configuration.
        options: The wall's options.
        tenant: The user of the code, and its workspace.
        meeting: The folder with the host's socket.
        code: The folder with the worker's code.
    """
    shared = [(code, _CODE, True), (meeting, _CONTROL, True), *_workspace(spec, tenant)]
    shared += [(path.resolve(), str(path.absolute()), True) for path in spec.readable]
    mounts = [
        {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}
        for source, target, read_only in shared
    ]
    return {
        "image": options.image,
        "name": f"coderoom-{os.getpid()}-{uuid.uuid4().hex[:12]}",
        "entrypoint": [str(spec.python or "python3"), "-I", "-S", f"{_CODE}/connect.py"],
        "command": [f"{_CONTROL}/socket", WORKSPACE],
        "user": f"{tenant.uid}:{tenant.gid}",
        "working_dir": "/",
        "hostname": HOSTNAME,
        "labels": {LABEL: owner.ours()},
        "healthcheck": {"test": ["NONE"]},
        "host_config": engine.client.create_host_config(
            mounts=mounts,
            **_walls(),
            **_files(spec, tenant),
            **_limits(engine, spec, options),
            **_more(engine, options, tenant),
        ),
    }


def memory_of(spec: WallSpec, options: DockerOptions) -> int:
    """The memory limit of a container, files in memory included."""
    in_memory = spec.limits.disk_bytes * (2 if spec.workspace is None else 1)
    return options.memory or spec.limits.memory_bytes + in_memory + _OWN_MEMORY


def _walls() -> dict[str, Any]:
    return {
        "auto_remove": True,
        "cap_drop": ["ALL"],
        "cgroupns": "private",
        "ipc_mode": "private",
        # Otherwise its standard error would fill the host's disk.
        "log_config": {"Type": "none"},
        "read_only": True,
    }


def _workspace(spec: WallSpec, tenant: Tenant) -> Iterator[tuple[Path, str, bool]]:
    if spec.workspace is None or tenant.workspace is None:
        return
    yield tenant.workspace.resolve(), WORKSPACE, False
    host = (Path(sys.prefix), Path(sys.base_prefix))
    for path, writable in guarded_paths(spec.workspace.resolve(), host):
        yield tenant.workspace.resolve() / path, f"{WORKSPACE}/{path}", not writable


def _files(spec: WallSpec, tenant: Tenant) -> dict[str, Any]:
    size = spec.limits.disk_bytes
    in_memory = f"rw,exec,nosuid,nodev,size={size}"
    folders = {"/tmp": f"{in_memory},mode=1777"}
    if tenant.workspace is None:
        folders[WORKSPACE] = f"{in_memory},mode=0700,uid={tenant.uid},gid={tenant.gid}"
    return {"tmpfs": folders, "shm_size": size, "network_mode": _NETWORKS[spec.network]}


def _limits(engine: Engine, spec: WallSpec, options: DockerOptions) -> dict[str, Any]:
    memory = memory_of(spec, options)
    return {
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": int(min(options.cpus, engine.info.get("NCPU") or options.cpus) * 1_000_000_000),
        "pids_limit": options.processes or spec.limits.processes * _SESSIONS + _OWN_PROCESSES,
        "ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "nofile", "Soft": _OPEN_FILES, "Hard": _OPEN_FILES},
        ],
    }


def _more(engine: Engine, options: DockerOptions, tenant: Tenant) -> dict[str, Any]:
    security = ["no-new-privileges"]
    if "selinux" in engine.security:
        # SELinux forbids containers to connect to sockets of the host.
        security.append("label=disable")
    more: dict[str, Any] = {"security_opt": security}
    if tenant.host_users:
        more["userns_mode"] = "host"
    if options.runtime is not None:
        more["runtime"] = options.runtime
    if options.gpus is not None:
        more["device_requests"] = [_gpus(options.gpus)]
    return more


def _gpus(wanted: str | int | list[str]) -> Mapping[str, Any]:
    request: dict[str, Any] = {"Driver": "", "Capabilities": [["gpu"]], "Options": {}, "Count": 0, "DeviceIDs": []}
    if isinstance(wanted, list):
        request["DeviceIDs"] = wanted
    else:
        request["Count"] = -1 if wanted == "all" else wanted
    return request

"""What a container is made with."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coderoom._util import owner
from coderoom.sandbox.walls.base import WallSpec
from coderoom.sandbox.walls.docker.engine import Engine
from coderoom.sandbox.walls.docker.folders import Tenant, guarded
from coderoom.sandbox.walls.docker.options import DockerOptions
from coderoom.sandbox.walls.layout import HOSTNAME, INSIDE, WORKSPACE

__all__ = ["LABEL", "container_config", "memory_of"]

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
        engine: The engine that will make it.
        spec: What was asked for.
        options: What was asked for of Docker.
        tenant: Whom the code will be.
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
    """How much memory a container may have; files in memory are part of that."""
    in_memory = spec.limits.disk_bytes * (2 if spec.workspace is None else 1)
    return options.memory or spec.limits.memory_bytes + in_memory + _OWN_MEMORY


def _walls() -> dict[str, Any]:
    return {
        "auto_remove": True,
        "cap_drop": ["ALL"],
        "cgroupns": "private",
        "ipc_mode": "private",
        # Else what it writes to standard error would fill the host's disk.
        "log_config": {"Type": "none"},
        "read_only": True,
    }


def _workspace(spec: WallSpec, tenant: Tenant) -> Iterator[tuple[Path, str, bool]]:
    if spec.workspace is None or tenant.workspace is None:
        return
    yield tenant.workspace.resolve(), WORKSPACE, False
    for path, writable in guarded(spec.workspace.resolve()):
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
        # Its rules forbid containers to connect to any socket of the host.
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

"""Joins a Ray cluster, or starts one of this machine. Used by batches and by the sandbox service."""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

from coderoom.errors import MissingDependencyError, RequestError

try:
    import ray
except ImportError as error:
    raise MissingDependencyError(
        "The engine 'ray' needs a package that is missing: pip install 'coderoom[ray]'"
    ) from error

LOCAL: Final = "local"
"""The address of a cluster of this machine, which is started."""
KEEP_CHILDREN: Final = {"env_vars": {"RAY_kill_child_processes_on_worker_exit": "false"}}
"""For actors: Ray would kill the children of one that ends, and so what removes its folders. Ours end by themselves."""
_CONNECT_SECONDS: Final = 5.0


def cluster_of(address: str | None) -> str:
    """The address of the cluster to start or to join; empty if this process is in one already."""
    if ray.is_initialized():
        return ""
    # Without an address, Ray would take any cluster that it finds on this machine.
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def join(address: str) -> None:
    """Join a cluster, or start one.

    Raises:
        RequestError: There is no such cluster.
    """
    try:
        host, colon, port = address.rpartition(":")
        if colon and "/" not in host and port.isdigit():  # Ray itself would wait for minutes.
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        # As `KEEP_CHILDREN`, which makes actors start later.
        settings = {"kill_child_processes_on_worker_exit": False} if address == LOCAL else None
        ray.init(address=address, include_dashboard=False, logging_level=logging.ERROR, _system_config=settings)
    except Exception as error:  # Of any type: a slow start is a bare `Exception`.
        ray.shutdown()
        what = f"The Ray cluster {address!r} cannot be reached"
        if address == LOCAL:
            what = "A Ray cluster of this machine cannot be started; try again when it is less busy"
        raise RequestError(f"{what}: {error}") from error

"""Names for the containers of AutoGen's Docker executor, and a mark by which a later process knows whose they were.

AutoGen's executor gives its container no label, and nothing in there notices that its host was killed. What it does
give are names of hosts: one more of them, which leads nowhere, says which process the container belongs to.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from typing import Any

from coderoom._util import owner

__all__ = ["free_name", "owner_host", "sweep_containers"]

_PREFIX = "autogen-code-exec"
_GENERATED = re.compile(rf"{_PREFIX}-[0-9a-f-]{{36}}")
_ALIVE = ["created", "running", "paused", "restarting"]
_OWNER = re.compile(r"coderoom_owner_([0-9a-f-]+(?:_[0-9]+){3})[:=].*")


def free_name(name: str) -> str:
    """A name for the container of an executor, which no other container has.

    Args:
        name: The name that the executor has for it.
    """
    if _GENERATED.fullmatch(name):
        # It may come from a dump that others have loaded too.
        return f"{_PREFIX}-{uuid.uuid4()}"
    # If there is no engine, AutoGen's executor says so.
    with contextlib.suppress(Exception), _engine() as client:
        if client.containers.get(name).status not in ("exited", "dead"):
            return f"{name}-{uuid.uuid4().hex[:8]}"
    return name


def owner_host() -> dict[str, str]:
    """A host to give to a container that is to end with this process, and its address."""
    try:
        return {"_".join(("coderoom_owner", *owner.ours().split())): "127.0.0.1"}
    except OSError:  # Not every system tells.
        return {}


def sweep_containers() -> None:
    """End the containers that processes of this machine have left when they were killed.

    Those that were to go on stay, and those that were to be kept when they end are kept. Nothing happens where there is
    no engine.
    """
    # Others may be at the same; whatever is left will be met again.
    with contextlib.suppress(Exception), _engine() as client:
        for found in client.api.containers(all=True, filters={"status": _ALIVE}):
            with contextlib.suppress(Exception):
                _end_if_orphan(client.api, found["Id"])


def _engine() -> contextlib.closing[Any]:
    import docker  # type: ignore[import-untyped]  # Not everybody has it.

    return contextlib.closing(docker.from_env())


def _end_if_orphan(api: Any, container: str) -> None:
    config = api.inspect_container(container)["HostConfig"]
    if not any(map(_is_of_orphan, config["ExtraHosts"] or ())):
        return
    if config["AutoRemove"]:
        api.remove_container(container, force=True, v=True)
    else:
        api.kill(container)


def _is_of_orphan(host: str) -> bool:
    found = _OWNER.fullmatch(host)
    whose = found[1].replace("_", " ") if found else ""
    # The engine may serve other machines, of whose processes nothing is known here.
    return whose.split()[:1] == owner.ours().split()[:1] and owner.is_orphan(whose)

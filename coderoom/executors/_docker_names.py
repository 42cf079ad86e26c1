"""Names for the containers of AutoGen's Docker executor, by which a later process knows whose they were.

AutoGen's executor gives its container no label, and nothing in there notices that its host was killed. A container whose
name is its user's choice has such a name among its hosts instead.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from typing import Any

from coderoom import _owner

__all__ = ["free_name", "owner_host", "sweep_containers"]

_PREFIX = "autogen-code-exec"
_GENERATED = re.compile(rf"{_PREFIX}-[0-9a-f-]{{36}}|{_PREFIX}_[0-9a-f-]+(_[0-9]+){{3}}_[0-9a-f]{{8}}")


def free_name(name: str, *, lasting: bool) -> str:
    """A name for the container of an executor, which no other container has.

    Args:
        name: The name that the executor has for it.
        lasting: Whether it is to be kept when whoever made it is gone.
    """
    if _GENERATED.fullmatch(name):
        # It may come from a dump that others have loaded too.
        return f"{_PREFIX}-{uuid.uuid4()}" if lasting else _own_name()
    # If there is no engine, AutoGen's executor says so.
    with contextlib.suppress(Exception), _engine() as client:
        if client.containers.get(name).status not in ("exited", "dead"):
            return f"{name}-{uuid.uuid4().hex[:8]}"
    return name


def owner_host() -> dict[str, str]:
    """A host to give to a container, by which it is known for one of this process. It leads nowhere."""
    return {_own_name(): "127.0.0.1"}


def sweep_containers() -> None:
    """Remove the containers that processes of this machine have left when they were killed.

    Those that were to be kept stay. Nothing happens where there is no engine.
    """
    # Others may be at the same; whatever is left will be met again.
    with contextlib.suppress(Exception), _engine() as client:
        for found in client.api.containers(all=True):
            with contextlib.suppress(Exception):
                if any(map(_is_orphan, _names(client, found))):
                    client.api.remove_container(found["Id"], force=True, v=True)


def _engine() -> contextlib.closing[Any]:
    import docker  # type: ignore[import-untyped]  # Not everybody has it.

    return contextlib.closing(docker.from_env())


def _names(client: Any, container: dict[str, Any]) -> Iterator[str]:
    yield from (name.removeprefix("/") for name in container["Names"])
    # The host's name and its address are divided by a colon, or by an equals sign.
    for host in client.api.inspect_container(container["Id"])["HostConfig"]["ExtraHosts"] or ():
        yield re.split("[:=]", host)[0]


def _own_name() -> str:
    with contextlib.suppress(OSError):  # Not every system tells.
        name = "_".join((_PREFIX, *_owner.ours().split(), uuid.uuid4().hex[:8]))
        if _GENERATED.fullmatch(name):
            return name
    return f"{_PREFIX}-{uuid.uuid4()}"


def _is_orphan(name: str) -> bool:
    if not _GENERATED.fullmatch(name):
        return False
    owner = name.split("_")[1:-1]
    # The engine may serve other machines, of whose processes nothing is known here.
    return owner[:1] == _owner.ours().split()[:1] and _owner.is_orphan(" ".join(owner))

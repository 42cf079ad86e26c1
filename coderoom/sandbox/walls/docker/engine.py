"""The Docker engine of this machine: connecting to it, and its abilities."""

from __future__ import annotations

import os
import platform
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coderoom.errors import MissingDependencyError, SandboxUnavailable

__all__ = ["Engine", "connect", "is_missing", "reason"]

_UNIX = "unix://"
_START = "Start Docker (for instance: systemctl start docker), or set DOCKER_HOST to where its engine listens."


@dataclass(frozen=True)
class Engine:
    """A connection to an engine on this machine.

    Attributes:
        client: docker-py's low-level client.
        path: Its socket.
        info: The engine's own description.
        sees_mounts: Whether the engine sees what this process mounts.
    """

    client: Any
    path: str
    info: Mapping[str, Any]
    sees_mounts: bool = True

    @property
    def security(self) -> frozenset[str]:
        """The names of the engine's security options, for instance `seccomp`, `rootless` and `userns`."""
        # For instance `name=seccomp,profile=default`; old engines give only the name.
        options = [option.split(",") for option in self.info.get("SecurityOptions") or ()]
        return frozenset(parts[0].removeprefix("name=") for parts in options if "profile=unconfined" not in parts)

    @property
    def remaps_users(self) -> bool:
        """Whether users of a container are other users on the host, of whom there are few."""
        return bool(self.security & {"rootless", "userns"})

    @property
    def is_rootless(self) -> bool:
        """Whether it runs as an ordinary user."""
        return "rootless" in self.security

    def lacks(self) -> list[str]:
        """The parts of the wall that this engine lacks."""
        wanted = {
            "MemoryLimit": "the limit on memory",
            "SwapLimit": "the limit on swap",
            "PidsLimit": "the limit on processes",
            "CpuCfsQuota": "the limit on processors",
        }
        lacking = [what for key, what in wanted.items() if self.info.get(key) is False]
        return lacking if "seccomp" in self.security else ["the filter of system calls (seccomp)", *lacking]

    def describe(self) -> str:
        """The engine and its isolation features, in one line."""
        security = self.security
        parts = [
            f"Docker {self.info.get('ServerVersion', '?')} with {self.info.get('DefaultRuntime', '?')}",
            *(
                f"{'' if name in security else 'no '}{said}"
                for name, said in (("seccomp", "seccomp"), ("apparmor", "AppArmor"))
            ),
            *(said for name, said in (("selinux", "SELinux"), ("userns", "remapped users")) if name in security),
            "rootless" if self.is_rootless else "run by root",
        ]
        return ", ".join(parts)

    def close(self) -> None:
        """Close the connections to it."""
        self.client.close()


def connect(timeout: float = 60) -> Engine:
    """Connect to the engine that the `docker` command would use.

    Args:
        timeout: The most seconds that an answer may take.

    Raises:
        SandboxUnavailable: No engine can be used.
        MissingDependencyError: The package `docker` is not installed.
    """
    docker = _package()
    if not sys.platform.startswith("linux"):
        raise SandboxUnavailable(
            f"The wall 'docker' works on Linux only, so far: on {platform.system()} Docker runs its containers in a "
            "virtual machine, into which this machine's sockets cannot be handed."
        )
    url = _url(docker)
    if not url.startswith(_UNIX):
        raise SandboxUnavailable(
            f"The Docker engine at {url!r} is not on this machine: the wall 'docker' needs one that listens on a "
            "unix:// socket here. Set DOCKER_HOST to it, or unset it for the usual place."
        )
    path = url.removeprefix(_UNIX)
    listener = _knock(path)
    try:
        client = docker.APIClient(base_url=url, version="auto", timeout=timeout)
    except docker.errors.DockerException as error:
        raise _silent(url, error) from error
    try:
        engine = Engine(client, path, client.info(), _shares_mounts(listener))
        _check(engine)
    except BaseException as error:
        client.close()
        if isinstance(error, OSError | docker.errors.DockerException):
            raise _silent(url, error) from error
        raise
    return engine


def reason(error: BaseException) -> str:
    """The text of an engine's error, without the address of the request."""
    return str(getattr(error, "explanation", None) or error) or type(error).__name__


def is_missing(error: BaseException) -> bool:
    """Whether an error of the engine means that something does not exist."""
    return getattr(getattr(error, "response", None), "status_code", None) == 404


def _silent(url: str, error: BaseException) -> SandboxUnavailable:
    return SandboxUnavailable(f"The Docker engine at {url!r} does not answer ({reason(error)}). {_START}")


def _package() -> Any:
    try:
        # Imported late: it takes long, and most sandboxes do not need it.
        import docker  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(
            f"The wall 'docker' needs the package 'docker' ({error}): pip install docker"
        ) from error
    return docker


def _url(docker: Any) -> str:
    url = os.environ.get("DOCKER_HOST")
    if url:
        return url
    name, contexts = os.environ.get("DOCKER_CONTEXT"), docker.context.ContextAPI
    try:
        context = contexts.get_context(name) if name else contexts.get_current_context()
    except docker.errors.DockerException:
        context = None
    found: str = (context.Host if context is not None else "") or f"{_UNIX}/var/run/docker.sock"
    return found.removeprefix("http+")


def _knock(path: str) -> int:
    """The process that listens. Raises clear errors for a failed connection, which docker-py reports in many ways."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(5)
        try:
            sock.connect(path)
        except FileNotFoundError as error:
            raise SandboxUnavailable(
                f"No Docker engine listens at {path!r}: there is no such socket. {_START}"
            ) from error
        except PermissionError as error:
            raise SandboxUnavailable(
                f"This user may not use the Docker engine at {path!r}. Add the user to the socket's group "
                f"({_group_of(path)!r}), which gives it the rights of root, or install Docker's rootless mode."
            ) from error
        except OSError as error:
            raise SandboxUnavailable(f"No Docker engine answers at {path!r} ({error}). {_START}") from error
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    listener: int = struct.unpack("3i", credentials)[0]
    return listener


def _shares_mounts(listener: int) -> bool:
    """Whether a process has this one's mounts. It may be systemd's, which has the same mounts as the engine."""
    try:
        return Path(f"/proc/{listener}/ns/mnt").samefile("/proc/self/ns/mnt")
    except OSError:  # It is in another process namespace, or may not be inspected.
        return False


def _group_of(path: str) -> str:
    try:
        return Path(path).group()
    except (OSError, KeyError):
        return "docker"


def _check(engine: Engine) -> None:
    info = engine.info
    if info.get("OSType", "linux") != "linux":
        raise SandboxUnavailable(f"The Docker engine runs {info['OSType']!r} containers; the sandbox needs Linux ones.")
    if info.get("KernelVersion") != platform.release():
        raise SandboxUnavailable(
            f"The Docker engine ({info.get('OperatingSystem', '?')}) runs in a virtual machine, into which this "
            "machine's sockets cannot be handed. Use an engine on this system itself (DOCKER_HOST), or another wall."
        )

"""The Docker engine of this machine, and its containers."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import re
import select
import socket
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coderoom._util.tasks import in_thread
from coderoom.errors import MissingDependencyError, SandboxUnavailable

_UNIX = "unix://"
_START = "Start Docker (for instance: systemctl start docker), or set DOCKER_HOST to where its engine listens."

_HEAD_END = b"\r\n\r\n"
_log = logging.getLogger(__name__)
_TAIL = 4096
_KILLED = 137
_PATIENCE = 2.0
# The engine's answer for a container that is being removed already, or does not run.
_CONFLICT = 409


@dataclass(frozen=True)
class Engine:
    """A connection, docker-py's low-level client, to an engine on this machine at a socket's `path`.

    `sees_mounts` says whether it sees what this process mounts.
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
    """Connect to the engine that the `docker` command would use, with the most seconds that an answer may take."""
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
        shares_mounts = False  # It is in another process namespace, or may not be inspected.
        with contextlib.suppress(OSError):  # It may be systemd's, which has the same mounts as the engine.
            shares_mounts = Path(f"/proc/{listener}/ns/mnt").samefile("/proc/self/ns/mnt")
        engine = Engine(client, path, client.info(), shares_mounts)
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
            group = "docker"
            with contextlib.suppress(OSError, KeyError):
                group = Path(path).group()
            raise SandboxUnavailable(
                f"This user may not use the Docker engine at {path!r}. Add the user to the socket's group "
                f"({group!r}), which gives it the rights of root, or install Docker's rootless mode."
            ) from error
        except OSError as error:
            raise SandboxUnavailable(f"No Docker engine answers at {path!r} ({error}). {_START}") from error
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    listener: int = struct.unpack("3i", credentials)[0]
    return listener


def _check(engine: Engine) -> None:
    info = engine.info
    if info.get("OSType", "linux") != "linux":
        raise SandboxUnavailable(f"The Docker engine runs {info['OSType']!r} containers; the sandbox needs Linux ones.")
    if info.get("KernelVersion") != platform.release():
        raise SandboxUnavailable(
            f"The Docker engine ({info.get('OperatingSystem', '?')}) runs in a virtual machine, into which this "
            "machine's sockets cannot be handed. Use an engine on this system itself (DOCKER_HOST), or another wall."
        )


class EngineStream:
    """An answer of the engine that lasts as long as a container, read without blocking, which docker-py cannot do.

    `target` is the path and query of the request, a POST. Of the answer, the last `keep` bytes are in `data`.
    """

    def __init__(self, path: str, target: str, keep: int, timeout: float = 60) -> None:
        self._keep = keep
        self.data = b""
        self.ended = False
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.settimeout(timeout)
            self._sock.connect(path)
            self._sock.sendall(f"POST {target} HTTP/1.1\r\nHost: docker\r\nContent-Length: 0\r\n\r\n".encode())
            while _HEAD_END not in self.data and not self.ended:
                self._take(4096)
            head, _, self.data = self.data.partition(_HEAD_END)
            status = head.split(None, 2)
            if len(status) < 2 or status[1] != b"200":
                raise OSError((head or b"the engine said nothing").decode(errors="replace"))
            self._sock.setblocking(False)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Becomes readable when more has arrived, and at the end."""
        return self._sock.fileno()

    def take_in(self) -> None:
        """Read what has arrived."""
        with contextlib.suppress(BlockingIOError):
            while not self.ended:
                self._take(65_536)

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self.ended = True
        self._sock.close()

    def _take(self, size: int) -> None:
        try:
            data = self._sock.recv(size)
        except BlockingIOError:
            raise
        except OSError:
            data = b""
        self.ended = not data
        self.data = (self.data + data)[-self._keep :]


class Container:
    """A new container, not started yet, that removes itself when its first process ends."""

    def __init__(self, engine: Engine, config: Mapping[str, Any]) -> None:
        self._client = engine.client
        self.id: str = self._client.create_container(**config)["Id"]
        target = f"/v{self._client.api_version}/containers/{self.id}"
        with contextlib.ExitStack() as undo:
            undo.callback(self._client.remove_container, self.id, force=True, v=True)
            # Both are requested before the start: the engine knows nothing of a removed container.
            self._output = EngineStream(engine.path, f"{target}/attach?stream=1&stdout=1&stderr=1", 4 * _TAIL)
            undo.callback(self._output.close)
            self._exit = EngineStream(engine.path, f"{target}/wait?condition=next-exit", _TAIL)
            undo.pop_all()

    def fileno(self) -> int:
        """Becomes readable when the container writes something, and when it ends."""
        return self._output.fileno()

    def start(self) -> None:
        """Start it."""
        self._client.start(self.id)

    def ended(self) -> bool:
        """Whether the container has ended."""
        self._output.take_in()
        return self._output.ended

    def written(self) -> str:
        """The end of what it has written."""
        self._output.take_in()
        # Without the header of each piece: eight bytes with its stream and its length.
        data = re.sub(rb"[\0-\2]\0\0\0[\0-\xff]{4}", b"", self._output.data, flags=re.DOTALL)
        return data.decode(errors="replace").strip()[-_TAIL:]

    def exit_code(self, patience: float = 0) -> int | None:
        """The exit code of a container that has ended; waits `patience` seconds for it."""
        if not self._exit.ended:
            poll = select.poll()
            poll.register(self._exit, select.POLLIN)
            poll.poll(patience * 1000)
            self._exit.take_in()
        found = re.search(rb'"StatusCode":\s*(\d+)', self._exit.data)
        return int(found[1]) if found else None

    def remove(self) -> None:
        """Kill and remove the container; returns when it is removed."""
        try:
            self._client.remove_container(self.id, force=True, v=True)
        except Exception as error:  # An error of the engine or of the connection.
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status == _CONFLICT:
                with contextlib.suppress(Exception):
                    self._client.wait(self.id, timeout=10, condition="removed")
            elif not is_missing(error):
                _log.warning("The container %s could not be removed: %s", self.id[:12], reason(error))

    def close(self) -> None:
        """Close the connections to it."""
        self._exit.close()
        self._output.close()


@dataclass(eq=False)
class DockerWorker:
    """A worker in a container; `undo` removes the container and all that was made for it."""

    control: socket.socket
    boot: Mapping[str, Any]
    container: Container
    memory: int
    undo: Callable[[], object]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        # For a worker that is never closed.
        self._end = weakref.finalize(self, _undo, os.getpid(), self.control, self.undo)

    async def end(self) -> None:
        """End the container and remove it."""
        await in_thread(self.kill)

    def kill(self) -> None:
        """As `end`, without an event loop."""
        with self._lock:
            self._end()

    def describe_death(self) -> str:
        """Why it ended by itself, as far as known."""
        if not self._end.alive:
            return "It was ended."
        written, ended = self.container.written(), self.container.ended()
        code = self.container.exit_code(_PATIENCE if ended else 0)
        why = f"Its container ended with exit code {code}."
        if code is None:
            why = "The Docker engine has ended, or no longer knows the container." if ended else "It is still running."
        if code == _KILLED:
            why += f" It was killed, most likely for needing more memory than its {self.memory >> 20} MiB."
        return f"{why} It wrote: {written}" if written else why


def _undo(host: int, control: socket.socket, undo: Callable[[], object]) -> None:
    control.close()
    if os.getpid() == host:  # Not in a fork of the host.
        undo()

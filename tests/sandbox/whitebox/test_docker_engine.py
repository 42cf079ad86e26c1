"""Finding the Docker engine, and its options: what needs no engine."""

from __future__ import annotations

import json
import os
import platform
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any, ClassVar

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox import SandboxConfig
from coderoom.sandbox.walls.docker.config import DEFAULT_IMAGE, DockerOptions
from coderoom.sandbox.walls.docker.engine import Engine, connect
from coderoom.sandbox.walls.docker.wall import DockerWall


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where DOCKER_HOST says that an engine listens."""
    path = str(tmp_path / "socket")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return path


def refusal() -> str:
    with pytest.raises(SandboxUnavailable) as caught:
        connect(5).close()
    return str(caught.value)


def test_no_engine(path: str) -> None:
    assert refusal().startswith(f"No Docker engine listens at {path!r}")
    assert "systemctl start docker" in refusal()


def test_an_engine_that_has_ended(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    assert refusal().startswith(f"No Docker engine answers at {path!r} (")


def test_an_engine_that_is_not_ours_to_use(path: str) -> None:
    connect_once_as_root()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        Path(path).chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            said = refusal()
        finally:
            os.seteuid(user)
    assert said.startswith(f"This user may not use the Docker engine at {path!r}")
    assert "group" in said


def connect_once_as_root() -> None:
    """Import what `connect` imports late, which another user might not be able to read."""
    with pytest.raises(SandboxUnavailable):
        connect(5)


def test_something_else_that_listens(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def hang_up() -> None:
            for _ in range(2):
                listening.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert refusal().startswith(f"The Docker engine at 'unix://{path}' does not answer (")
        thread.join()


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:2375", "ssh://somewhere", "npipe:////./pipe/docker_engine"])
def test_an_engine_elsewhere(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    assert refusal().startswith(f"The Docker engine at {host!r} is not on this machine")


def test_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert "works on Linux only" in refusal()


async def test_probing_never_raises(path: str) -> None:
    report = await DockerWall().probe()
    assert not report.available
    assert path in report.detail


class _Answers(BaseHTTPRequestHandler):
    info: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        body = json.dumps({"ApiVersion": "1.41"} if self.path.endswith("/version") else self.info).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return ""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def answering(path: str) -> Iterator[type[_Answers]]:
    """An engine that says of itself what the test wants."""
    with ThreadingUnixStreamServer(path, _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield _Answers
        server.shutdown()
        thread.join()


def test_an_engine_in_a_virtual_machine(answering: type[_Answers]) -> None:
    answering.info = {"OSType": "linux", "KernelVersion": "1.0-elsewhere", "OperatingSystem": "Docker Desktop"}
    assert refusal().startswith("The Docker engine (Docker Desktop) runs in a virtual machine")


def test_an_engine_for_another_system(answering: type[_Answers]) -> None:
    answering.info = {"OSType": "windows"}
    assert "'windows' containers" in refusal()


async def test_strictness_refuses_an_engine_that_leaves_something_out(answering: type[_Answers]) -> None:
    answering.info = {"KernelVersion": platform.release(), "SecurityOptions": [], "SwapLimit": False}
    with pytest.raises(SandboxUnavailable, match=r"leaves out the filter of system calls .*, the limit on swap"):
        await DockerWall().start(SandboxConfig(options={"strict": True}))
    assert "without the filter of system calls (seccomp), the limit on swap" in (await DockerWall().probe()).detail


def engine(*security: str, **info: Any) -> Engine:
    return Engine(None, "", {"SecurityOptions": list(security), **info})


def test_what_an_engine_leaves_out() -> None:
    assert engine("name=seccomp,profile=default").lacks() == []
    assert engine("seccomp", PidsLimit=False, MemoryLimit=True).lacks() == ["the limit on processes"]
    assert engine("name=seccomp,profile=unconfined").lacks() == ["the filter of system calls (seccomp)"]


def test_what_an_engine_is() -> None:
    ordinary = engine("name=apparmor", "name=seccomp,profile=default", ServerVersion="28.1", DefaultRuntime="runc")
    assert ordinary.describe() == "Docker 28.1 with runc, seccomp, AppArmor, run by root"
    assert not ordinary.remaps_users
    rootless = engine("name=seccomp,profile=builtin", "name=rootless", ServerVersion="28.1", DefaultRuntime="crun")
    assert rootless.describe() == "Docker 28.1 with crun, seccomp, no AppArmor, rootless"
    assert rootless.remaps_users


def test_the_options_that_nobody_has_to_give() -> None:
    options = DockerOptions.of({})
    assert options.image == DEFAULT_IMAGE
    assert options.memory is None
    assert not options.strict


@pytest.mark.parametrize(
    ("given", "size"),
    [("64m", 64 << 20), ("1.5g", 3 << 29), ("512 MiB", 512 << 20), ("67108864", 64 << 20), (64 << 20, 64 << 20)],
)
def test_sizes(given: str | int, size: int) -> None:
    assert DockerOptions.of({"memory": given}).memory == size


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("cpu", 1, "there is no 'cpu'; did you mean 'cpus'?"),
        ("zzz", 1, "there is no 'zzz'; there are cpus, gpus, image, memory,"),
        ("memory", "much", "'memory' cannot be 'much' (a size is a number of bytes, or for instance '512m' or '2g')"),
        ("memory", "1m", "'memory' cannot be '1m' (Input should be greater than"),
        ("cpus", 0, "'cpus' cannot be 0 ("),
        ("cpus", float("inf"), "'cpus' cannot be inf ("),
        ("gpus", 0, "'gpus' cannot be 0 ("),
        ("gpus", "some", "'gpus' cannot be 'some' ("),
        ("image", "", "'image' cannot be '' ("),
        ("processes", 1, "'processes' cannot be 1 ("),
    ],
)
def test_wrong_options(option: str, value: Any, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        DockerOptions.of({option: value})
    assert str(caught.value).startswith(f"Wrong options of the wall 'docker': {said}")


def test_all_wrong_options_are_listed() -> None:
    with pytest.raises(RequestError, match=r"'cpus' cannot be -1 .*; there is no 'imagee'"):
        DockerOptions.of({"cpus": -1, "imagee": "x"})

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox.walls.docker.engine import DockerWorker
from coderoom.sandbox.walls.docker.wall import DockerWall
from tests.support.docker import client

from .common import SHARED, Start, a_spec, ours
from .stub import write_stub


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made; nothing may be left there."""
    folder = Path(tempfile.mkdtemp(prefix="coderoom-test-", dir="/tmp"))  # The path of a socket must be short.
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    folder.rmdir()
    assert str(folder) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


@pytest.fixture
def engine(docker_host: str, temporary: Path) -> Iterator[Any]:
    """A client of the engine. No more containers of ours may be there at the end."""
    engine = client(docker_host)
    SHARED.clear()
    SHARED.update(ours(engine))
    yield engine
    assert ours(engine) == []
    engine.close()


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The folders of pytest are closed to others, which is nothing to the container.
    monkeypatch.setattr(DockerWall, "code", write_stub(tmp_path))
    return DockerWall.code


@pytest.fixture
async def start(code: Path, engine: Any, docker_image: str) -> AsyncIterator[Start]:
    workers: list[DockerWorker] = []

    async def start(workspace: Path | None = None, **more: Any) -> DockerWorker:
        options = {"image": docker_image, **more.pop("options", {})}
        worker = await DockerWall().start(a_spec(workspace, options=options, **more))
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        await worker.end()

"""A real Studio for the tests."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.studio.driving import Studio

_ROOT = Path(__file__).parents[2]


@dataclass
class Server:
    """A running server."""

    url: str
    pid: int
    appdir: Path


@pytest.fixture(scope="session")
def studio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    python = os.environ.get("CODEROOM_STUDIO_PYTHON")
    if not python:
        pytest.skip("CODEROOM_STUDIO_PYTHON names no Python that has AutoGen Studio")
    appdir = tmp_path_factory.mktemp("studio")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": str(_ROOT),
        "AUTOGENSTUDIO_APPDIR": str(appdir),
        "HOME": str(appdir),
        "OPENAI_API_KEY": "none",
    }
    command = [python, "-m", "uvicorn", "autogenstudio.web.app:app", "--host", "127.0.0.1", "--port", str(port)]
    with (appdir / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=appdir, env=environment, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"{url}/api/version", trust_env=False)
                break
            except httpx.HTTPError:
                assert server.poll() is None and time.monotonic() < end, (appdir / "log").read_text()
                time.sleep(0.1)
        yield Server(url, server.pid, appdir)
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture
def studio(studio_server: Server) -> Iterator[Studio]:
    studio = Studio(studio_server.url)
    yield studio
    studio.close()

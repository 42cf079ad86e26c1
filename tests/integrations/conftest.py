from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coderoom._util.temporary import remove_folder
from coderoom.studio.environment import take_lock, without_python_settings
from tests.support.commands import ROOT
from tests.support.openai_server import OpenAIServer

PINS = Path(__file__).with_name("requirements.txt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The first test installs the frameworks.
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def frameworks() -> Path:
    """The interpreter of an environment with all frameworks and this checkout; made once for these versions."""
    texts = PINS.read_bytes(), (ROOT / "pyproject.toml").read_bytes()
    key = hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]
    folder = Path(sys.prefix) / f"integrations-{key}"
    python = folder / "bin" / "python"
    lock = take_lock(folder.with_suffix(".lock"), lambda: None)
    try:
        if not (folder / ".ready").exists():
            remove_folder(folder)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            for command in (
                [sys.executable, "-m", "venv", str(folder)],
                [*pip, "--requirement", str(PINS)],
                [*pip, "--editable", str(ROOT)],
            ):
                subprocess.run(command, check=True, env=without_python_settings(os.environ))
            (folder / ".ready").touch()
    finally:
        os.close(lock)
    return python


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A server with OpenAI's protocol; add its answers."""
    with OpenAIServer() as server:
        yield server

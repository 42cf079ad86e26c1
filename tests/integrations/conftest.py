from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from coderoom._util.temporary import remove_folder
from coderoom.studio.environment import take_lock, without_python_settings
from tests.support.commands import ROOT
from tests.support.openai_server import OpenAIServer

PINS = Path(__file__).with_name("requirements.txt")
ENVIRONMENTS = Path(__file__).with_name("environments")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The first test installs the frameworks.
    for item in items:
        if {"frameworks", "environment"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def frameworks() -> Path:
    """The interpreter of an environment with the frameworks, which lies over this one; made once for these versions."""
    return make_environment(PINS)


@pytest.fixture(scope="session")
def environment() -> Callable[[str], Path]:
    """Makes such an environment with the versions of a file of `environments`; returns its interpreter."""
    return lambda name: make_environment(ENVIRONMENTS / f"{name}.txt")


def make_environment(file: Path) -> Path:
    texts = [file.read_bytes(), (ROOT / "constraints.txt").read_bytes()]
    folder = Path(sys.prefix) / f"integrations-{hashlib.sha256(b''.join(texts)).hexdigest()[:16]}"
    python = folder / "bin" / "python"
    lock = take_lock(folder.with_suffix(".lock"), lambda: None)
    try:
        if not (folder / ".ready").exists():
            remove_folder(folder)
            lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
            pins = [line for line in lines if not is_installed(line)]
            install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
            if file.name == "nemo_gym.txt":  # It is for Python 3.12; what the door uses of it is for any.
                install += ["--python-version", "3.12"]
            env = without_python_settings(os.environ)
            env |= {"UV_FIND_LINKS": env["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in env else {}  # As pip does.
            for command in ([sys.executable, "-m", "venv", "--without-pip", str(folder)], [*install, *pins]):
                subprocess.run(command, check=True, env=env)
            ours = sysconfig.get_path("purelib")
            theirs = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
            (Path(theirs) / "below.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
            (folder / ".ready").touch()
    finally:
        os.close(lock)
    return python


def is_installed(pin: str) -> bool:
    name, _, version = pin.partition("==")
    try:
        return metadata.version(name) == version
    except metadata.PackageNotFoundError:
        return False


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A server with OpenAI's protocol; add its answers."""
    with OpenAIServer() as server:
        yield server

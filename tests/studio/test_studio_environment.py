"""The environment that Studio runs in: made once, whole or not at all."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import coderoom as own
from coderoom.errors import MissingDependencyError
from coderoom.studio import prepare_environment
from tests.studio.processes import below
from tests.support.commands import ROOT, coderoom, environment
from tests.support.studio import Studio, alive, studio_python, wait_for

pytestmark = pytest.mark.studio

PINS = ROOT / "coderoom" / "studio" / "requirements.txt"
NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
NO_INDEX |= {"PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "", "PIP_NO_CACHE_DIR": "1"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and nowhere to get packages from."""
    for name, value in {**NO_INDEX, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "cache"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Pins that can be met without a network: one small package."""
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "ANSWER = 42\n")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    pins = tmp_path / "requirements.txt"
    pins.write_text(f"tiny @ file://{wheel}\n")
    return pins


def be_silent(words: str, detail: str = "") -> None:
    pass


def answer(interpreter: Path) -> str:
    command = [str(interpreter), "-I", "-c", "import tiny, sys; print(tiny.ANSWER, sys.prefix)"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=90).stdout.strip()


def test_every_pin_is_exact_and_names_no_place() -> None:
    lines = [line for line in PINS.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) > 80
    for line in lines:
        assert re.fullmatch(r'[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*(; sys_platform == "linux")?', line), line
    pins = dict(line.partition(";")[0].strip().split("==") for line in lines)
    assert pins["autogenstudio"] == "0.4.2.2"
    assert {pins[name] for name in ("autogen-core", "autogen-agentchat", "autogen-ext")} == {"0.7.5"}
    assert not any(name.lower() == "coderoom" for name in pins)


NEEDS = """
import importlib.metadata, json, sys
from packaging.requirements import Requirement
wrong = []
for text in json.load(sys.stdin):
    need = Requirement(text)
    if need.marker is not None and not need.marker.evaluate():
        continue
    if importlib.metadata.version(need.name) not in need.specifier:
        wrong.append(text)
print(wrong)
"""


def test_it_has_what_coderoom_needs(tmp_path: Path) -> None:
    """By its own metadata, so that a new dependency is not forgotten."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    code = NEEDS.replace("from packaging", "from pip._vendor.packaging")
    done = subprocess.run(
        [studio_python(), "-I", "-c", code], input=json.dumps(wanted), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


OLDEST = """
from importlib.metadata import distributions
from pip._vendor.packaging.specifiers import SpecifierSet
found = {each.name: each.metadata["Requires-Python"] for each in distributions()}
print(sorted(name for name, wanted in found.items() if wanted and not SpecifierSet(wanted).contains("3.11.0")))
"""


def test_every_pin_is_for_the_oldest_python_too() -> None:
    done = subprocess.run([studio_python(), "-I", "-c", OLDEST], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_coderoom_there_is_the_one_that_runs_here(studio_server: Studio) -> None:
    variables = Path(f"/proc/{studio_server.server_pid}/environ").read_text().split("\0")
    [links] = [value for name, _, value in (each.partition("=") for each in variables) if name == "PYTHONPATH"]
    code = "import coderoom, os; print(coderoom.__version__, os.path.realpath(coderoom.__file__))"
    done = subprocess.run(
        [studio_python(), "-P", "-c", code],
        env={"PYTHONPATH": links},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [own.__version__, str(Path(own.__file__).resolve())]
    assert {path.name for path in Path(links).iterdir()} == {"coderoom", "coderoom.dist-info"}


def test_it_is_made_once_for_these_pins_and_whole(cache: Path, small: Path) -> None:
    told: list[str] = []

    def tell(words: str, detail: str = "") -> None:
        told.append(words + detail)

    interpreter = prepare_environment(tell, pins=small)
    folder = interpreter.parents[1]
    assert answer(interpreter) == f"42 {folder}"
    assert folder.parent == cache / "coderoom"
    assert told[0] == "Creating an environment for AutoGen Studio"
    told.clear()
    before = folder.stat().st_mtime_ns
    assert prepare_environment(tell, pins=small) == interpreter
    assert (told, folder.stat().st_mtime_ns) == ([], before)
    # One that is half made is not used.
    (folder / ".ready").unlink()
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").write_text("half")
    (folder / "litter").touch()
    assert answer(prepare_environment(tell, pins=small)) == f"42 {folder}"
    assert not (folder / "litter").exists()
    small.write_text(f"{small.read_text()}# more\n")
    assert prepare_environment(tell, pins=small) != interpreter


def test_starts_at_once_do_not_fight(cache: Path, small: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from coderoom.studio import prepare_environment\n"
        "print(prepare_environment(lambda words, detail='': None, pins=Path(sys.argv[1])))"
    )

    def start(_: int) -> str:
        command = [sys.executable, "-c", code, str(small)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout.strip()

    with ThreadPoolExecutor() as pool:
        made = set(pool.map(start, range(3)))
    assert len(made) == 1
    assert answer(Path(made.pop())).startswith("42 ")


def test_a_failing_install_says_what_pip_said(cache: Path, tmp_path: Path) -> None:
    done = coderoom("studio", "--no-browser", "--port", "0", "--appdir", "app", "--json", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)["error"]
    assert "AutoGen Studio cannot be installed." in told
    assert "No matching distribution found for" in told
    assert "-m pip install --no-deps" in told
    assert f"--requirement {PINS}" in told
    assert "Traceback" not in done.stderr
    # What is left of it is not taken for an environment.
    assert list(cache.rglob(".ready")) == []


def test_a_signal_ends_an_install(cache: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        process = subprocess.Popen(
            [sys.executable, "-m", "coderoom", "studio", "--no-browser", "--port", "0", "--appdir", "app"],
            cwd=tmp_path,
            env=environment({"PIP_INDEX_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/simple"}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            asking, _ = silent.accept()
            with asking:
                started = below(process.pid)
                process.send_signal(signal.SIGTERM)
                told, wrong = process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, wrong) == (130, "")
    assert "Installing AutoGen Studio, which takes a minute or two and is done once" in told
    assert started
    wait_for(lambda: not any(map(alive, started)), 10)


# As Debian's Python without python3-venv.
FAKE = """\
#!/bin/sh
echo "The virtual environment was not created successfully because ensurepip is not available."
exit 1
"""


def test_without_any_pip_the_error_says_what_to_install(cache: Path, small: Path, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(FAKE)
    python.chmod(0o755)
    with pytest.raises(MissingDependencyError, match=r"(?s)ensurepip is not available.*apt-get install python3-venv"):
        prepare_environment(be_silent, pins=small, python=str(python))

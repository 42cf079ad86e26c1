"""How `coderoom studio` runs and ends: nothing of it is left, and nothing of the user's is touched."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from coderoom.configs import make_gallery
from tests.studio.driving import USER
from tests.studio.processes import below
from tests.support.commands import ROOT, coderoom, coderoom_process
from tests.support.openai_server import OpenAIServer
from tests.support.studio import KEY, Studio, alive, ask, start_studio, studio_environment, studio_python, wait_for

pytestmark = pytest.mark.studio

WHERE = """\
```python
import importlib.util, sys
print(sys.executable, importlib.util.find_spec("pytest") is not None, importlib.util.find_spec("autogenstudio"))
```"""


def run_command(studio: Studio, team: str, task: str) -> list[str]:
    number = studio.teams()[team]["id"]
    return [
        str(studio_python()),
        "-I",
        str(ROOT / "tests" / "support" / "studio_run.py"),
        studio.url,
        USER,
        str(number),
        task,
    ]


def test_a_team_runs_code_with_the_packages_of_the_user(tmp_path: Path) -> None:
    with (
        OpenAIServer([WHERE, "That is where."]) as model,
        # A server of one's own often needs no key.
        start_studio(
            *(tmp_path / "app", "--no-browser"),
            cwd=tmp_path,
            env={"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": ""},
        ) as studio,
    ):
        command = run_command(studio, "code-act", "Where are you?")
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert (messages[-1]["type"], messages[-1]["status"]) == ("result", "complete")
    answer = messages[-1]["data"]["task_result"]["messages"][-1]["content"]
    assert f"{sys.executable} True None" in answer
    assert model.requests[0].headers["authorization"] == "Bearer none"


def test_a_server_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    with start_studio(tmp_path / "app", "--no-browser", cwd=tmp_path) as studio:
        started = below(studio.pid)
        assert studio.process.stdout is not None
        os.kill(studio.server_pid, signal.SIGKILL)
        assert studio.process.wait(60) == 1
        told = json.loads(studio.process.stdout.read())
        wait_for(lambda: not any(map(alive, started)), 15)
    assert told["succeeded"] is False
    assert "ended unexpectedly (signal 9)" in told["error"]
    assert "Application startup complete" in told["error"]


def test_it_brings_its_gallery_and_touches_nothing_of_the_users(tmp_path: Path) -> None:
    home = tmp_path / "home"
    cwd = tmp_path / "here"
    for folder in (home, cwd):
        folder.mkdir()
    cache = Path(studio_python()).parents[3]
    env = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(cache),
        "AUTOGENSTUDIO_APPDIR": str(tmp_path / "theirs"),
        "AUTOGENSTUDIO_DATABASE_URI": f"sqlite:///{tmp_path}/theirs.db",
        "PYTHONPATH": str(cwd),
    }
    # Neither what lies in the current folder nor what the user's PYTHONPATH names is imported.
    (cwd / "uvicorn.py").write_text("raise SystemExit('this is not uvicorn')")
    with start_studio(tmp_path / "app", "--no-browser", cwd=cwd, env=env) as studio:
        teams = [row["component"] for row in studio.teams().values()]
        galleries = [row["config"] for row in studio.ask("GET", "/gallery/", user_id=USER)]
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in below(studio.pid)]
    wanted = make_gallery()
    assert sorted(teams, key=lambda team: team["label"]) == wanted["components"]["teams"]
    assert [each["name"] for each in galleries if each["id"] == "gallery_default"] == ["Default Component Gallery"]
    assert [each for each in galleries if each["id"] != "gallery_default"] == [wanted]
    assert [path.name for path in home.iterdir()] == []
    assert [path.name for path in cwd.iterdir()] == ["uvicorn.py"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app", "here", "home"]
    assert not any(KEY.encode() in command for command in commands)
    kept = [path for path in (tmp_path / "app").rglob("*") if path.is_file()]
    assert len(kept) > 3
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]
    assert (tmp_path / "app").stat().st_mode & 0o077 == 0


def test_a_person_is_told_where_it_is(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    studio_python()
    process = subprocess.Popen(
        [sys.executable, "-m", "coderoom", "studio", "--port", "0", "--appdir", str(tmp_path / "app")],
        cwd=tmp_path,
        env=studio_environment({"BROWSER": str(browser)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background has them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_for(seen.exists)
        process.send_signal(signal.SIGINT)
        told, wrong = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    url = seen.read_text().strip()
    assert url.startswith("http://127.0.0.1:")
    assert f"AutoGen Studio with CodeRoom's teams: {url}" in told
    assert str(tmp_path / "app" / "studio.log") in told
    assert "no authentication" in told
    assert wrong == ""


SLOW = """\
import time
from pathlib import Path
from autogen_agentchat.conditions import TextMentionTermination


class Slow(TextMentionTermination):
    \"\"\"Is not made before the end of the day.\"\"\"

    component_provider_override = "parts.Slow"

    def __init__(self, text: str) -> None:
        Path("begun").touch()
        time.sleep(600)
"""


def test_a_server_that_hangs_ends_as_well(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(SLOW)
    options = ["--no-browser", "--trust", "parts"]
    with start_studio(tmp_path / "app", *options, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}) as studio:
        slow = {"provider": "parts.Slow", "component_type": "termination", "config": {"text": "DONE"}}
        with ThreadPoolExecutor() as pool:
            asking = pool.submit(studio.ask, "POST", "/validate/", {"component": slow})
            wait_for((tmp_path / "begun").exists)
            started = below(studio.pid)
            assert studio.end() == 130
            assert isinstance(asking.exception(10), httpx.TransportError)
        wait_for(lambda: not any(map(alive, started)), 15)


PARTS = """\
from autogen_agentchat.conditions import TextMentionTermination


class Finished(TextMentionTermination):
    \"\"\"Ends a run.\"\"\"

    component_provider_override = "parts.Finished"
"""


def test_a_package_that_is_not_trusted_is_refused(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "parts.py").write_text(PARTS)
    text = (ROOT / "examples" / "team.yaml").read_text()
    own = "        - provider: parts.Finished\n          config:\n            text: DONE\n"
    team = tmp_path / "team.yaml"
    team.write_text(text.replace("      conditions:\n", f"      conditions:\n{own}"))
    env = {"PYTHONPATH": str(tmp_path / "library")}
    told = request_of("--team", str(team), "--port", "0", "--appdir", str(tmp_path / "app"), cwd=tmp_path, env=env)
    assert (told["code"], "--trust parts" in told["error"]) == (2, True)


def request_of(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """A start that fails, and what it says to a program and to a person."""
    # What PYTHONPATH names is known to a new process only.
    run = coderoom_process if env else coderoom
    done = run("studio", "--no-browser", "--json", *arguments, cwd=cwd, env=env)
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["error"].splitlines()[0] in done.stderr
    assert "Traceback" not in done.stderr
    return told | {"code": done.returncode}


def test_a_port_in_use_is_told(studio_server: Studio, tmp_path: Path) -> None:
    port = studio_server.url.rpartition(":")[2]
    told = request_of("--port", port, "--appdir", str(tmp_path / "app"), cwd=tmp_path)
    assert told["code"] == 2
    assert f"Port {port} cannot be used: Address already in use." in told["error"]
    assert "--port 0" in told["error"]


def test_a_folder_in_use_is_told(studio_server: Studio, tmp_path: Path) -> None:
    told = request_of("--port", "0", "--appdir", str(studio_server.appdir), cwd=tmp_path)
    assert told["code"] == 2
    assert "is in use by another `coderoom studio`" in told["error"]


@pytest.mark.parametrize("name", ["", "studio.log", "coderoom.json", "coderoom.lock"])
def test_a_folder_that_cannot_be_used_is_told(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "app"
    if name:
        (folder / name).mkdir(parents=True)
    else:
        folder.touch()
    told = request_of("--port", "0", "--appdir", "app", cwd=tmp_path)
    assert told["code"] == 2
    assert f"The folder {str(folder)!r} cannot be used:" in told["error"]
    assert repr(str(folder / name)) in told["error"]
    assert told["error"].endswith("Choose another with --appdir.")


def test_a_broken_database_is_told(tmp_path: Path) -> None:
    cache = str(Path(studio_python()).parents[3])
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "autogen04202.db").write_text("This is no database.\n" * 100)
    told = request_of("--port", "0", "--appdir", "app", cwd=tmp_path, env={"XDG_CACHE_HOME": cache})
    assert told["code"] == 1
    assert f"If the database in {str(folder)!r} is broken, or of another Studio," in told["error"]
    assert "name another folder with --appdir" in told["error"]
    assert "file is not a database" in told["error"]
    assert (folder / "autogen04202.db").read_text().startswith("This is no database.")


def test_it_starts_without_input_and_output(tmp_path: Path) -> None:
    studio_python()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    options = ["--no-browser", "--port", str(port), "--appdir", "app"]
    script = 'exec "$@" <&- >&- 2>&-'
    process = subprocess.Popen(
        ["sh", "-c", script, "sh", sys.executable, "-m", "coderoom", "studio", *options],
        cwd=tmp_path,
        env=studio_environment(),
    )

    def answers() -> bool:
        assert process.poll() is None
        with contextlib.suppress(httpx.HTTPError):
            ask(f"http://127.0.0.1:{port}", "GET", "/health")
            return True
        return False

    try:
        wait_for(answers)
        started = below(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        wait_for(lambda: not any(map(alive, started)), 15)
    finally:
        process.kill()
        process.wait()


def test_a_bad_team_file_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("provider: coderoom.teams.CodingTeam\nconfig:\n  participant: []\n")
    told = request_of("--team", "bad.yaml", "--port", "0", "--appdir", str(tmp_path / "app"), cwd=tmp_path)
    assert told["code"] == 2
    assert "bad.yaml:3" in told["error"]
    assert not (tmp_path / "app").exists()

"""How runs end in Studio's playground whose parts are AutoGen's own, which end nothing by themselves."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.agents.helpers import python
from tests.studio.autogens import calls_a_function, calls_a_server, calls_a_tool, executes, local, own_server
from tests.studio.driving import Run, Studio
from tests.studio.processes import below, connections, wait_until_gone
from tests.studio.teams import CODING, ROUND, sandbox, team
from tests.support.commands import ROOT
from tests.support.openai_server import OpenAIServer
from tests.support.studio import KEY, end, start_studio, wait_for
from tests.support.studio import Studio as Server

pytestmark = pytest.mark.studio

SECONDS = 10.0
"""How long to wait for the end of a run that is stopped. It takes less than two on a quiet machine."""

ENDLESS = "open('begun', 'w').close()\nwhile True:\n    pass"
STUBBORN = (
    "import os, signal\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "if os.fork() == 0:\n    os.setsid()\n    open('begun', 'w').close()\n"
    "while True:\n    pass"
)
WAITS = """
def work() -> int:
    import pathlib, subprocess
    pathlib.Path({path!r}).touch()
    return subprocess.run(["sleep", "600"], env={{}}).returncode
"""
LEAVES_ALONE = """
def work() -> int:
    import pathlib, subprocess
    pathlib.Path({path!r}).touch()
    return subprocess.Popen(["sleep", "600"], env={{}}).pid
"""
LEAVES = (
    "import subprocess, sys\n"
    "code = 'import os, time\\nif os.fork() == 0:\\n    os.setsid()\\n    time.sleep(600)'\n"
    "null = subprocess.DEVNULL\n"
    "subprocess.run([sys.executable, '-c', code], stdin=null, stdout=null, stderr=null)\n"
    "open('begun', 'w').close()"
)

Json = dict[str, Any]
Make = Callable[[Path], Json]
"""Makes an agent that works in the folder, and touches `begun` there."""

RUNNING: dict[str, Make] = {
    "an endless loop": lambda folder: executes(ENDLESS, local(folder)),
    "code that ignores signals": lambda folder: executes(STUBBORN, local(folder)),
    "an endless loop in a tool": lambda folder: calls_a_tool(ENDLESS, local(folder)),
    "an endless loop in a tool, in our sandbox": lambda folder: calls_a_tool(ENDLESS, sandbox(folder)),
    "a program that a function waits for": lambda folder: calls_a_function(WAITS.format(path=str(folder / "begun"))),
    "a tool of a server": lambda folder: calls_a_server("wait", {}, own_server(folder / "begun")),
}
ENDING: dict[str, Make] = {
    "what code leaves behind": lambda folder: executes(LEAVES, local(folder)),
    "what code of a tool leaves behind": lambda folder: calls_a_tool(LEAVES, local(folder)),
    "what a function leaves behind": lambda folder: calls_a_function(LEAVES_ALONE.format(path=str(folder / "begun"))),
    "a server of tools": lambda folder: calls_a_server("count", {"item": "apples"}, own_server(folder / "begun")),
}


def nested(kind: str, agent: Json) -> Json:
    return team(kind, team(ROUND, agent, name="inner"), turns=1)


@contextmanager
def stuck(server: Server, driver: Studio, component: Json, folder: Path) -> Iterator[tuple[Run, dict[int, str]]]:
    """A run whose code or tool does not end, and the processes that there are for it."""
    before = below(server.pid)
    folder.mkdir(exist_ok=True)
    # A server of tools says when it is asked for something.
    sign = "wait" if "McpWorkbench" in json.dumps(component) else ""
    with driver.running(component, "Go.") as run:
        begun = folder / "begun"
        wait_for(lambda: begun.exists() and sign in begun.read_text())
        started = {pid: what for pid, what in below(server.pid).items() if pid not in before}
        assert started
        yield run, started


@contextmanager
def http_mcp_server(log: Path) -> Iterator[str]:
    """An MCP server that is nobody's process: its address."""
    log.touch()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "tests.support.mcp_server", str(log), str(port)], cwd=ROOT)
    try:
        wait_for(lambda: _listens(port), 30)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(("case", "kind"), list(zip(RUNNING, cycle([CODING, ROUND]), strict=False)))
def test_stop_ends_it_at_once(case: str, kind: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    with stuck(studio_server, driver, team(kind, RUNNING[case](tmp_path)), tmp_path) as (run, started):
        run.stop()
        while run.next(SECONDS)["type"] != "completion":
            pass
        assert run.wait_for_record(SECONDS)["status"] == "stopped"
        assert wait_until_gone(started, SECONDS) == {}


@pytest.mark.parametrize(("case", "kind"), list(zip(RUNNING, cycle([ROUND, CODING]), strict=False)))
def test_a_closed_tab_ends_it(case: str, kind: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    with stuck(studio_server, driver, nested(kind, RUNNING[case](tmp_path)), tmp_path) as (run, started):
        run.close_tab()
        assert wait_until_gone(started, SECONDS) == {}
        assert run.wait_for_record(SECONDS)["status"] == "stopped"


@pytest.mark.parametrize("case", ENDING)
def test_nothing_is_left_after_a_run(case: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    before = below(studio_server.pid)
    run = driver.run(nested(ROUND, ENDING[case](tmp_path)), "Compute it.")
    assert run.record()["status"] == "complete"
    assert (tmp_path / "begun").exists()
    left = [pid for pid in below(studio_server.pid) if pid not in before]
    assert wait_until_gone(left, SECONDS) == {}


def test_a_run_that_goes_on_keeps_what_is_its_own(studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    folder = tmp_path / "goes on"
    with stuck(studio_server, driver, team(ROUND, RUNNING["an endless loop"](folder)), folder) as (run, going):
        component = team(ROUND, RUNNING["an endless loop"](tmp_path))
        with stuck(studio_server, driver, component, tmp_path) as (other, started):
            other.stop()
            assert wait_until_gone(started, SECONDS) == {}
            time.sleep(1)
            assert below(studio_server.pid).keys() >= going.keys()
            run.stop()
            assert wait_until_gone(going, SECONDS) == {}


LASTING = python("import subprocess\nsubprocess.Popen(['sleep', '600'])\n" + ENDLESS)


@pytest.mark.parametrize(
    ("how", "cases"),
    [
        ("the server is killed", ["code that ignores signals", "a tool of a server"]),
        ("the command is killed", ["code that ignores signals"]),
        ("the command is ended", ["an endless loop in a tool"]),
    ],
)
def test_nothing_is_left_when(how: str, cases: list[str], tmp_path: Path) -> None:
    """Neither of these runs, nor of one of a shipped team that runs beside them."""
    with (
        OpenAIServer(respond=lambda request: LASTING) as model,
        start_studio(tmp_path / "app", cwd=tmp_path, env={"OPENAI_BASE_URL": model.base_url}) as server,
        closing(Studio(server.url)) as driver,
        ExitStack() as runs,
    ):
        stuck_in = {tmp_path / case: team(ROUND, RUNNING[case](tmp_path / case)) for case in cases}
        stuck_in[tmp_path / "coderoom-workspace"] = server.teams()["code-act"]["component"]
        started: dict[int, str] = {}
        for folder, component in stuck_in.items():
            started |= runs.enter_context(stuck(server, driver, component, folder))[1]
        assert model.requests[0].headers["authorization"] == f"Bearer {KEY}"
        everything = below(server.pid)
        end(server, how)
        assert wait_until_gone({**everything, **started}, 10) == {}


@pytest.mark.parametrize("tool", ["count", "wait"])
def test_no_session_is_left_with_a_server_elsewhere(
    tool: str, studio_server: Server, driver: Studio, tmp_path: Path
) -> None:
    """AutoGen's assistant closes none, and the one who waits is stopped."""
    log = tmp_path / "log"
    with http_mcp_server(log) as url:
        driver.get("/teams/")  # This has a connection as well.
        before = connections(studio_server.server_pid)
        server = {"type": "StreamableHttpServerParams", "url": url}
        component = team(ROUND, calls_a_server(tool, {"item": "apples"} if tool == "count" else {}, server))
        with driver.running(component, "Go.") as run:
            wait_for(lambda: tool in log.read_text(), 30)
            if tool == "wait":
                run.stop()
            assert run.wait_for_record()["status"] == ("stopped" if tool == "wait" else "complete")
        wait_for(lambda: connections(studio_server.server_pid) <= before, 10)

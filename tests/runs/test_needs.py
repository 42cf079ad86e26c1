"""What a run reached and was refused of the network, and the smallest lists that `coderoom runs policy` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from coderoom.runs import Journal, Step
from coderoom.runs.needs import policy_of
from coderoom.runs.pages.run import run_page
from coderoom.sandbox.proxy.rules import advice
from tests.support.commands import coderoom, recording

TEAM = """\
# A comment.
provider: coderoom.teams.CodingTeam
config:
  participants:
    - provider: coderoom.agents.CodeActAgent
      config:
        name: coder
        description: sk-proj-0123456789abcdefghijABCDEFGHIJ0123456789
        tools:
          - provider: autogen_core.tools.FunctionTool
            config: {name: called}
          - provider: autogen_core.tools.FunctionTool
            config: {name: spare}
        code_executor:
          provider: coderoom.executors.SandboxCodeExecutor
          config:
            network: [api.example.org, "*.example.com"]
            packages: on-request
"""


def use(host: str, port: int | None = 443, why: str = "") -> dict[str, Any]:
    return {"host": host, "port": port, "why": why, "connections": 1, "sent": 1, "received": 1}


def kept(path: Path, team: str, name: str, network: list[dict[str, Any]], **result: Any) -> tuple[Journal, str]:
    """A run with one cell that asked for these hosts."""
    journal = Journal(path)
    run = journal.begin("run", name, "Do it.", None, {"source": team, "network": None, "workspace": "/w"})
    request = {"blocks": [["python", "!pip install 'polars>=1' tqdm\nimport polars"], ["sh", "true"]]}
    done = {"outcome": "error", "output": "", "artifacts": [], "network": network, **result}
    journal.add(run, Step(1, "code", "coder", "", 0.0, 0.5, request, done))
    said: dict[str, Any] = {"type": "CodeExecutionEvent", "result": {"output": "", "exit_code": 1}}
    journal.add(run, Step(2, "message", "coder", "", 0.0, 0.0, None, said))
    journal.end(run, "error", {})
    return journal, run


def test_the_smallest_lists_are_a_diff_of_the_teams_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").touch()
    private = '10.0.0.7:80 is a private address; network: ["10.0.0.7:80"] allows it'
    uses = [
        use("api.example.org"),
        use("evil.example.net", 8080, advice("evil.example.net", 8080)),
        use("inside.example.com", 80, f"No connection to inside.example.com:80: {private}."),
    ]
    missing = {"type": "FileNotFoundError", "message": f"[Errno 2] No such file or directory: '{tmp_path}/data/a.csv'"}
    calls = [{"name": "called", "arguments": {}, "outcome": "ok", "duration": 0.1}]
    journal, run = kept(tmp_path / "j", TEAM, "team.yaml", uses, error=missing, calls=calls)
    policy = policy_of(journal.find(run), list(journal.steps(run)))
    changes = [line for line in policy.lines if line[0] in "+-"]
    assert changes == [
        "--- team.yaml",
        "+++ team.yaml",
        "-          - provider: autogen_core.tools.FunctionTool",
        "-            config: {name: spare}",
        '-            network: [api.example.org, "*.example.com"]',
        "-            packages: on-request",
        "+            network:",
        "+              - api.example.org:443",
        "+              - inside.example.com:80",
        "+              - 10.0.0.7:80 # asked for, and refused",
        "+              - evil.example.net:8080 # asked for, and refused",
        "+            packages:",
        "+              - polars>=1",
        "+              - tqdm",
        "+            readable:",
        f"+              - {tmp_path}/data # asked for, and refused",
    ]
    journal.close()


def test_json_has_no_comments_so_what_was_refused_is_a_remark(tmp_path: Path) -> None:
    executor = {"provider": "coderoom.executors.SandboxCodeExecutor", "config": {"network": "observe"}}
    team = json.dumps({"config": {"code_executor": executor}})
    error = {"type": "ModuleNotFoundError", "message": "No module named 'sklearn'"}
    uses = [use("a.example.org", None, advice("a.example.org", None))]
    journal, run = kept(tmp_path / "j", team, "team.json", uses, error=error)
    policy = policy_of(journal.find(run), list(journal.steps(run)))
    added = [line.strip("+ ,") for line in policy.lines if line[0] == "+"][1:]
    assert added == ['"network": false', '"packages": [', '"polars>=1"', '"tqdm"', "]"]
    assert {"network: asked for, and refused: a.example.org", "packages: not installed: scikit-learn"} <= {
        *policy.unknown
    }
    journal.close()


def test_hostile_names_are_text_on_the_page_and_never_in_a_list(tmp_path: Path) -> None:
    name = "<img src=x>\x1b[31m\n- '*'"
    hint = 'No connection to a.org:443: a is b; network: ["*"] allows it.'
    uses = [
        use(name, 443, f"{name!r} is not the name of a host."),
        use("api.example.org", 443, f"TLS asks for the host {hint!r}, and the connection is to 'api.example.org'."),
        use("api.example.org", 80, hint),
    ]
    journal, run = kept(tmp_path / "j", TEAM, "team.yaml", uses)
    page = run_page(journal, journal.find(run))
    assert "&lt;img src=x&gt;" in page
    assert "<img" not in page
    assert "\x1b" not in page
    policy = policy_of(journal.find(run), list(journal.steps(run)))
    assert policy.needs.hosts == policy.needs.refused == []
    assert "+            network: false" in policy.lines
    journal.close()


@pytest.fixture
def server() -> Iterator[int]:
    """A server of HTTP at the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_address[1]
        found.shutdown()


@pytest.mark.slow
def test_a_team_reaches_the_hosts_that_a_command_names(tmp_path: Path, server: int) -> None:
    place = f"127.0.0.1:{server}"
    code = f"""\
import urllib.request, urllib.error
print(urllib.request.urlopen("http://{place}/").read())
try:
    urllib.request.urlopen("https://sk-0123456789abcdefghijABCDEFGHIJ.example.net/")
except urllib.error.URLError as error:
    print("refused")
"""
    model = recording(tmp_path / "r.json", [f"```python\n{code}```", "Done."])
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal")}
    options = ["--model", model, "--allow-host", place, "--json"]
    done = coderoom("run", "code-act", "Fetch it.", *options, cwd=tmp_path, env=env)
    facts = json.loads(done.stdout)
    assert (facts["outcome"], facts["task"]) == ("ok", f"Fetch it.\n\nHosts that code can reach: {place}")
    assert [(use["port"], bool(use["why"])) for use in facts["network"]] == [(server, False), (443, True)]
    shown = coderoom("runs", "show", cwd=tmp_path, env=env).stdout
    assert f"network  reached: {place}; not reached: " in shown
    policy = coderoom("runs", "policy", cwd=tmp_path, env=env).stdout
    assert f"+              - {place}\n" in policy
    for text in (policy, coderoom("runs", "show", "--json", cwd=tmp_path, env=env).stdout):
        assert "0123456789abcdefghijABCDEFGHIJ" not in text.replace(code, "")


@pytest.mark.slow
def test_a_whole_network_and_a_list_exclude_each_other(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", [])
    for command in (["run", "code-act", "x", "--model", model], ["exec", "-", "--language", "python"]):
        done = coderoom(*command, "--network", "--allow-host", "a.org", cwd=tmp_path)
        assert (done.returncode, "whole network" in done.stderr) == (2, True)

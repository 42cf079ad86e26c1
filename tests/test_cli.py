from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from coderoom.configs import shipped_teams
from coderoom.sandbox import registry
from tests.support.commands import ROOT, coderoom, coderoom_process, environment, recording
from tests.support.solving import GOOD, SPECS, TESTS

NILE = ROOT / "examples" / "nile.csv"
REPLAY = f"replay:{ROOT / 'examples' / 'nile.replay.yaml'}"
PRIMES = f"replay:{ROOT / 'examples' / 'primes.replay.yaml'}"
TASK = "When did the flow of the Nile drop?"
WALLS = set(registry.WALLS.own) - {"none"}
# No engine listens there, so that this wall cannot be built on any machine.
NO_DOCKER = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
APPROVED = json.dumps({"approved": True, "issues": [], "summary": "Fine."})


def python(code: str) -> str:
    return f"```python\n{code}\n```"


# --- The main job ---


def test_the_demo_is_real_but_for_the_models_words(tmp_path: Path) -> None:
    done = coderoom("run", "analyst", TASK, "--file", str(NILE), "--model", REPLAY, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    executions = [message for message in run["messages"] if message["type"] == "CodeExecutionEvent"]
    assert [event["result"]["exit_code"] for event in executions] == [1, 0]
    assert "KeyError: 'volume'" in executions[0]["result"]["output"]
    # The number in the answer is what the code computes from the file, worked out here in another way.
    flow = [int(line.split(",")[1]) for line in NILE.read_text().splitlines()[1:]]
    drop = sum(flow[:28]) / 28 - sum(flow[28:]) / 72
    assert f"dropped by {drop:.1f}" in run["answer"]
    answer, files = run["answer"].rsplit("\n\n", 1)
    assert answer == executions[1]["result"]["output"].strip()
    assert files.startswith("Files made or changed: nile.png (image/png, ")
    assert (run["outcome"], run["approved"], run["turns"], run["attempts"]) == ("ok", True, 6, 2)
    assert run["usage"]["total_tokens"] > 0
    assert [Path(file).relative_to(tmp_path).parts[::2] for file in run["files"]] == [
        ("coderoom-workspace", "nile.png")
    ]
    assert Path(run["files"][0]).read_bytes().startswith(b"\x89PNG")
    assert run["isolation"] in WALLS


@pytest.mark.slow
def test_the_run_is_shown_to_a_person(tmp_path: Path) -> None:
    done = coderoom("run", "analyst", TASK, "--file", str(NILE), "--model", REPLAY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == "team analyst"
    assert lines[1].removeprefix("Code is isolated from this machine by: ") in WALLS
    text = " ".join(done.stderr.split())
    assert "The model is a recording" in text
    for shown in ("coder", "executor", "reviewer", "exit code 1", "not approved", "approved", "outcome ok"):
        assert shown in text
    assert "6, with 2 runs of code" in text
    assert re.search(r"coderoom-workspace/[-\w]+/nile.png", text)


@pytest.mark.slow
def test_every_shipped_team_runs(tmp_path: Path) -> None:
    code = python("print(6 * 7)")
    replies = {
        "coder-executor": [code],
        "coder-reviewer": [code, "It is 42.", APPROVED],
        "analyst": [code, APPROVED],
        "code-act": [code, "It is 42."],
        "test-driven": [SPECS, TESTS, GOOD, APPROVED],
        "human-approves": [code, "It is 42."],
        "maintainer": [code, "It is 42.", APPROVED],
        "repository": [code, "It is 42."],
    }
    assert set(replies) == set(shipped_teams())
    for team, words in replies.items():
        model = recording(tmp_path / f"{team}.json", words)
        done = coderoom("run", team, "What is 6 times 7?", "--model", model, "--json", cwd=tmp_path, stdin="y\n")
        run = json.loads(done.stdout)
        assert (done.returncode, run["outcome"]) == (0, "ok"), (team, done.stderr, run["error"])
        assert "42" in run["answer"]
        assert run["isolation"] in WALLS


@pytest.mark.parametrize("stdin", ["n\n", ""])
def test_a_person_at_the_terminal_refuses(tmp_path: Path, stdin: str) -> None:
    model = recording(tmp_path / "r.json", [python("open('made', 'w')")])
    done = coderoom("run", "human-approves", "Do it.", "--model", model, "--json", cwd=tmp_path, stdin=stdin)
    run = json.loads(done.stdout)
    assert (done.returncode, run["outcome"], run["attempts"], run["files"]) == (1, "rejected", 0, [])
    assert "| open('made', 'w')" in done.stderr
    assert ("said no" if stdin else "The input ended") in run["messages"][-1]["content"]


# --- Outcomes and exit codes ---


def test_an_agent_that_meets_its_limit_has_not_answered(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", [python(f"print({number})") for number in range(10)])
    done = coderoom("run", "code-act", "Go on.", "--model", model, "--json", cwd=tmp_path)
    run = json.loads(done.stdout)
    assert (done.returncode, run["outcome"], run["succeeded"], run["attempts"]) == (1, "unfinished", False, 10)
    assert run["agent_stop_reason"] == "max_steps"
    shown = " ".join(coderoom("run", "code-act", "Go on.", "--model", model, cwd=tmp_path).stderr.split())
    assert "stopped The turn was ended before there was an answer: the step limit was reached" in shown
    assert "Maximum number of turns" not in shown


def test_code_that_fails_is_a_failed_task(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", [python("raise SystemExit(7)")] * 2)
    done = coderoom("run", "coder-executor", "Fail.", "--model", model, "--json", cwd=tmp_path)
    run = json.loads(done.stdout)
    assert (done.returncode, run["outcome"], run["answer"]) == (1, "error", "")
    assert run["stop_reason"].startswith("No progress")


def test_a_reviewer_cannot_make_a_failure_a_success(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", [python("1 / 0"), APPROVED] * 6)
    done = coderoom("run", "analyst", "Fail.", "--model", model, "--json", cwd=tmp_path)
    run = json.loads(done.stdout)
    assert (done.returncode, run["outcome"], run["approved"]) == (1, "error", False)


def test_what_no_reviewer_has_seen_is_no_success(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", [python("print(42)"), "It is 42.", APPROVED])
    done = coderoom("run", "coder-reviewer", "Do.", "--max-turns", "1", "--model", model, "--json", cwd=tmp_path)
    run = json.loads(done.stdout)
    assert (done.returncode, run["outcome"], run["attempts"]) == (1, "unfinished", 1)


def test_words_without_code_are_no_success(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", ["All done, it works!"] * 6)
    done = coderoom("run", "coder-executor", "Do it.", "--model", model, "--json", cwd=tmp_path)
    run = json.loads(done.stdout)
    assert (done.returncode, run["outcome"], run["attempts"]) == (1, "no_code", 0)


def test_a_model_that_fails_is_told_in_words(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", [])
    done = coderoom("run", "coder-executor", "Do it.", "--model", model, cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Agent 'coder' failed" in " ".join(done.stderr.split())


def test_a_reply_that_was_cut_off_is_told(tmp_path: Path) -> None:
    cut = {"content": "```python\nprint(1", "finish_reason": "length"}
    model = recording(tmp_path / "r.json", [cut, cut])
    done = coderoom("run", "code-act", "Do it.", "--model", model, cwd=tmp_path)
    assert done.returncode == 1
    assert "was cut off at its token limit (max_tokens)" in " ".join(done.stderr.split())


@pytest.mark.parametrize("as_json", [False, True])
def test_a_missing_key_is_a_missing_thing(tmp_path: Path, as_json: bool) -> None:
    done = coderoom("run", "analyst", "Do it.", *(["--json"] if as_json else []), cwd=tmp_path)
    assert done.returncode == 3
    assert "OPENAI_API_KEY" in done.stderr
    assert "Traceback" not in done.stderr
    if as_json:
        assert "OPENAI_API_KEY" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "analist", "x"], "analyst"),
        (["run", "missing.yaml", "x"], "missing.yaml"),
        (["run", "analyst", "how", "many", "--model", REPLAY], "Quote a task of several words."),
        (["run", "analyst", "x", "--model", "claude:opus"], "did you mean 'anthropic:'?"),
        (["run", "analyst", "x", "--model", "replay"], "did you mean 'replay:FILE'?"),
        (["run", "analyst", "x", "--model", REPLAY.partition(":")[2]], "this is a recording of a model's replies"),
        (["run", "analyst", "x", "--model", f"replay:{ROOT / 'examples' / 'team.yaml'}"], "is not a recording"),
        (["validate", REPLAY.partition(":")[2]], "used as --model replay:"),
        (["solve", "x", "--embeddings", "small", "--model", REPLAY], "--embeddings looks for similar instructions"),
        (["init", "a.yaml", "--model", "openai:a}b"], "cannot be written as a default"),
        (["run", "analyst", "  ", "--model", REPLAY], "task is empty"),
        (["run", "analyst", "x", "--model", "gpt-4o"], "did you mean 'openai:gpt-4o'? Expected openai:NAME, "),
        (["resume", "--journal", "none.sqlite3"], "There is no run in the journal yet."),
        (["runs", "--outcome", "great"], "There is no outcome 'great'; there are ok, error, "),
        (["run", "analyst", "x", "--model", "replay:nothing.yaml"], "nothing.yaml"),
        (["run", "analyst", "x", "--model", REPLAY, "--file", "nothing.csv"], "nothing.csv"),
        (["run", "analyst", "x", "--model", REPLAY, "--workspace", str(NILE)], "not a folder"),
        (["run", "analyst", "x", "--model", REPLAY, "--wall", "paper"], "'paper'"),
        (["run", "code-act", "x", "--model", "http://h/v1#mine", "--budget", "cost_usd=1"], "Add 'mine' to a file"),
        (["run", "coder-reviewer", "x", "--budget", "foo=1"], "A budget has no limit 'foo'"),  # And there is no key.
        (["chat", "coder-reviewer", "--budget", "coder.cells=0.5"], "The budget is wrong: cells: "),
        (["exec", "nothing.md"], "nothing.md"),
        (["exec", str(ROOT / "examples" / "notebook.md"), "--wall", "paper"], "'paper'"),
        (["exec", str(ROOT / "examples" / "notebook.md"), "--workspace", "/etc"], "system folder"),
        (["exec", str(NILE)], "not a kind of file that runs here"),
        (["exec", str(ROOT / "README.md"), "-w", "nowhere/at/all"], "nowhere"),
        (["exec", str(ROOT / "examples" / "notebook.md"), "--language", "cobol"], "'cobol'"),
        (["validate", "nothing.yaml"], "nothing.yaml"),
        (["validate", str(ROOT / "examples" / "team.yml")], "team.yaml'?"),
        (["fly"], "No such command"),
        (["runs", "list"], "'coderoom runs' alone is a command, and has"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = coderoom(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_an_unknown_wall_in_the_environment_is_named(tmp_path: Path) -> None:
    done = coderoom("run", "code-act", "x", "--model", REPLAY, cwd=tmp_path, env={"CODEROOM_WALL": "paper"})
    assert (done.returncode, "There is no wall 'paper'" in done.stderr) == (2, True)


def test_the_task_can_come_from_standard_input(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", [python("print(1)")])
    done = coderoom("run", "coder-executor", "-", "--model", model, "--json", cwd=tmp_path, stdin="Print one.\n")
    assert json.loads(done.stdout)["task"] == "Print one."
    assert not (tmp_path / "coderoom-workspace").exists()  # Nothing was written to it.


# --- Walls ---


def test_without_a_wall_it_is_said_plainly(tmp_path: Path) -> None:
    code = f"import os; print(os.path.samefile('..', {str(tmp_path / 'coderoom-workspace')!r}) and 6 * 7)"
    model = recording(tmp_path / "r.json", [python(code)])
    done = coderoom("run", "coder-executor", "Where?", "--model", model, "--wall", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("team coder-executor\nCode is not isolated")
    assert done.stdout == "42\n"


@pytest.mark.parametrize("way", ["option", "variable"])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_wall_that_cannot_be_built_refuses_before_a_model_is_asked(tmp_path: Path, way: str, as_json: bool) -> None:
    model = recording(tmp_path / "r.json", [])
    env = NO_DOCKER | ({"CODEROOM_WALL": "docker"} if way == "variable" else {})
    arguments = [*(["--wall", "docker"] if way == "option" else []), *(["--json"] if as_json else [])]
    done = coderoom("run", "coder-executor", "Do it.", "--model", model, *arguments, cwd=tmp_path, env=env)
    assert done.returncode == 3
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    assert (json.loads(done.stdout)["succeeded"] is False) if as_json else done.stdout == ""


@pytest.mark.slow
@pytest.mark.timeout(300)  # Matplotlib looks for fonts first.
def test_the_demo_runs_also_where_no_wall_can_be_built(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = ["make", "-f", str(ROOT / "Makefile"), f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.demo", "demo"]
    env = environment(NO_DOCKER | {"CODEROOM_WALL": "docker"})
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "nowhere" in done.stderr
    # A make within a make tells where it is.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make[")]
    teams = [at for at, line in enumerate(lines) if line == "team analyst"]
    assert lines[teams[1] + 1].startswith("Code is not isolated")
    assert list((tmp_path / "coderoom-workspace").glob("*/nile.png"))


def test_a_team_that_has_its_own_wall_keeps_it(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "team.yaml").read_text().replace("${CODEROOM_WALL:-auto}", "docker")
    (tmp_path / "team.yaml").write_text(text)
    model = recording(tmp_path / "r.json", [])
    done = coderoom("run", "team.yaml", "Do it.", "--model", model, "--wall", "none", cwd=tmp_path)
    assert done.returncode == 2
    assert "does not let --wall choose the wall" in done.stderr


def test_code_in_a_team_sees_nothing_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    look = (
        "import os, socket\n"
        f"print(os.path.exists({str(tmp_path / 'secret.txt')!r}), os.listdir('.'), 'SOME_KEY' in os.environ)\n"
        "try:\n    socket.create_connection(('127.0.0.1', 9), 3)\nexcept OSError as error:\n    print('no network')"
    )
    model = recording(tmp_path / "r.json", [python(look)])
    arguments = ["run", "coder-executor", "Look.", "--model", model, "--json"]
    done = coderoom(*arguments, cwd=tmp_path, env={"SOME_KEY": "x"})
    assert json.loads(done.stdout)["answer"] == "False [] False\nno network\n"


@pytest.mark.slow
def test_a_warning_of_autogen_is_a_sentence(tmp_path: Path) -> None:
    executor = {"provider": "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor", "config": {}}
    config = {"name": "executor", "code_executor": executor}
    agent = {"provider": "autogen_agentchat.agents.CodeExecutorAgent", "config": config}
    team = {"provider": "coderoom.teams.CodingTeam", "config": {"participants": [agent], "max_turns": 1}}
    (tmp_path / "team.json").write_text(json.dumps(team))
    env = {"PYTHONWARNINGS": "default"}
    done = coderoom_process("run", "team.json", "```python\nprint(6 * 7)\n```", "-p", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    warned = done.stderr.partition("Code is not isolated")[0].splitlines()
    assert warned
    assert all(line.startswith("warning: ") for line in warned)


# --- Ctrl-C ---


ENDLESS = python(
    "import subprocess, sys\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}], start_new_session=True)\n"
    "print('started', flush=True)\n"
    "while True: pass"
)


def alive(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if mark in words:
                found.append(words)
    return found


@pytest.mark.slow
def test_an_interrupt_ends_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-interrupt"
    model = recording(tmp_path / "r.json", [ENDLESS.format(mark=mark)])
    command = [sys.executable, "-m", "coderoom", "run", "coder-executor", "Loop.", "--model", model, "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 90
        while not alive(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert alive(mark)
        for _ in range(3):  # A person may be impatient.
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert json.loads(out)["outcome"] == "cancelled"
    assert b"Traceback" not in err
    assert alive(mark) == []


@pytest.mark.slow
def test_an_interrupt_ends_a_list_of_tasks(tmp_path: Path) -> None:
    endless = python("open('started', 'w').close()\nwhile True: pass")
    model = recording(tmp_path / "r.json", [endless, "never asked"])
    command = [sys.executable, "-m", "coderoom", "chat", "code-act", "--model", model, "--no-journal"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        process.stdin.write(b"Loop.\nAgain.\n")
        process.stdin.flush()
        while not list((tmp_path / "coderoom-workspace").glob("*/started")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130, out
    assert b"cancelled" in out
    assert b"Again." not in out
    assert b"Traceback" not in err


@pytest.mark.slow
def test_a_question_is_not_overwritten_by_the_display_around_it(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", ["```python\nprint(6 * 7)\n```", "Done."])
    command = [sys.executable, "-m", "coderoom", "run", "human-approves", "Count.", "--model", model]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment({"TERM": "xterm"}), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # The other side is closed.
            while data := os.read(ours, 65536):
                shown += data
                if data.endswith(b"[y/N/e] "):
                    os.write(ours, b"y\n")
    os.close(ours)
    assert process.returncode == 0, shown
    before, _, after = shown.partition(b"[y/N/e] y\r\n")
    assert b"waits for the model" in before
    # No line above the answer is erased.
    assert b"\x1b[1A" not in after.partition(b"exit code 0")[0]


AUTOGENS = """\
provider: autogen_agentchat.teams.RoundRobinGroupChat
component_type: team
config:
  max_turns: 2
  participants:
    - provider: autogen_agentchat.agents.AssistantAgent
      component_type: agent
      config:
        name: coder
        description: Writes code.
        model_client: {provider: coderoom.configs.ReplayModel, config: {replies: []}}
        reflect_on_tool_use: false
        tool_call_summary_format: "{result}"
    - provider: autogen_agentchat.agents.CodeExecutorAgent
      component_type: agent
      config:
        name: executor
        code_executor:
          provider: autogen_ext.code_executors.local.LocalCommandLineCodeExecutor
          config: {work_dir: work}
"""


@pytest.mark.slow
def test_nothing_is_left_of_autogens_own_agents_either(tmp_path: Path) -> None:
    """Its executor neither looks at a cancel nor ends the processes of its code."""
    mark = f"mark-{os.getpid()}-autogen"
    (tmp_path / "team.yaml").write_text(AUTOGENS)
    model = recording(tmp_path / "r.json", [ENDLESS.format(mark=mark)])
    command = [sys.executable, "-m", "coderoom", "run", "team.yaml", "Loop.", "--model", model, "--json"]
    env = environment({"PYTHONWARNINGS": "ignore"})
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 90
        while not alive(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert alive(mark)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 130
    assert alive(mark) == []


# --- validate ---


BROKEN = {
    "unknown key": ("provider: coderoom.teams.CodingTeam\nconfig:\n  participant: []\n", 3),
    "wrong type": ("provider: coderoom.teams.CodingTeam\nconfig:\n  participants: []\n  max_turns: many\n", 4),
    "missing variable": ("provider: coderoom.teams.CodingTeam\nconfig:\n  name: ${NOT_SET}\n  participants: []\n", 3),
    "unknown provider": ("provider: coderoom.teams.CodeTeam\nconfig: {}\n", 1),
    "untrusted provider": ("provider: evil.Team\nconfig: {}\n", 1),
    "bad YAML": ("provider: [\nconfig: {}\n", 1),
    "cycle of anchors": ("provider: coderoom.teams.CodingTeam\nconfig: &a\n  name: *a\n", 2),
    "empty file": ("", None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_validate_names_the_place(tmp_path: Path, name: str) -> None:
    text, line = BROKEN[name]
    (tmp_path / "team.yaml").write_text(text)
    done = coderoom("validate", "team.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    place = "team.yaml:" if line is None else f"team.yaml:{line}:"
    assert any(shown.startswith(place) for shown in done.stdout.splitlines()), done.stdout


def test_validate_refuses_a_binary_file(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_bytes(bytes(range(256)))
    done = coderoom("validate", "team.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1


def test_validate_prints_every_mistake_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("provider: coderoom.teams.CodingTeam\nconfig:\n  x1: 1\n  x2: 2\n  x3: 3\n")
    done = coderoom("validate", "a.yaml", "analyst", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, found["valid"]) == (2, False)
    assert {problem["line"] for problem in found["files"][0]["problems"]} >= {3, 4, 5}
    assert found["files"][1]["problems"] == []


def test_validate_passes_the_shipped_teams(tmp_path: Path) -> None:
    done = coderoom("validate", "analyst", "coder-reviewer", "coder-executor", cwd=tmp_path)
    assert (done.returncode, done.stdout.count(": ok")) == (0, 3)


# --- doctor, help, start-up ---


def test_doctor_lists_every_wall_and_engine(tmp_path: Path) -> None:
    done = coderoom("doctor", cwd=tmp_path, env=NO_DOCKER)
    assert done.returncode == 0
    findings = json.loads(coderoom("doctor", "--json", cwd=tmp_path, env=NO_DOCKER).stdout)["findings"]
    assert {"name": "autogen-core", "state": "ok", "detail": "0.7.5"} in findings
    [monty] = [found for found in findings if found["name"] == "engine monty"]
    installed = importlib.util.find_spec("pydantic_monty") is not None
    assert monty["state"] == ("ok" if installed else "missing")
    assert (importlib.metadata.version("pydantic-monty") if installed else "coderoom[monty]") in monty["detail"]
    walls = {found["name"].removeprefix("wall "): found for found in findings if found["name"].startswith("wall ")}
    assert set(walls) == WALLS
    assert (walls["docker"]["state"], "nowhere" in walls["docker"]["detail"]) == ("missing", True)
    [isolation] = [found for found in findings if found["name"] == "isolation"]
    # What is said there is what a run takes.
    taken = isolation["detail"].partition(",")[0]
    assert (isolation["state"], walls[taken]["state"]) == ("ok", "ok")
    model = recording(tmp_path / "r.json", [python("print(1)")])
    run = coderoom("run", "coder-executor", "One.", "--model", model, "--json", cwd=tmp_path, env=NO_DOCKER)
    assert json.loads(run.stdout)["isolation"] == taken


@pytest.mark.slow
def test_what_needs_no_autogen_does_not_import_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(1)")
    (tmp_path / "team.yaml").write_text(
        "provider: coderoom.teams.CodingTeam\nconfig:\n  participants:\n"
        "  - provider: coderoom.agents.CodeExecutorAgent\n    config:\n      name: coder\n"
        "      code_executor: {provider: coderoom.executors.SandboxCodeExecutor, config: {wall: none}}\n"
    )
    code = (
        "import sys\n"
        "from coderoom.cli import main\n"
        "cached = 'cache show --cache-dir c'\n"
        "slow = ['autogen', 'openai', 'bandit', 'docker', 'jsonschema', 'markdown_it', 'rich', 'ruamel']\n"
        "slow += ['coderoom.sandbox', 'coderoom.agents', 'coderoom.generation']\n"
        "listed = 'runs --journal j'\n"
        "quick = '--help', 'run --help', 'validate --help', '--version', '', listed, listed + ' --json'\n"
        "checked = 'validate team.yaml'\n"
        "others = ['openai', 'requests', 'docker', 'coderoom.generation', 'coderoom.agents.code_act']\n"
        "others += ['coderoom.approval.human']\n"
        "for words in *quick, 'doctor', 'exec a.py', cached, checked:\n"
        "    before = set(sys.modules)\n"
        "    sys.argv = ['coderoom', *words.split()]\n"
        "    try:\n        main()\n"
        "    except SystemExit as end:\n        assert not end.code\n"
        "    unwanted = slow if words in quick else others if words == checked else slow[:2]\n"
        "    found = {name for name in {*sys.modules} - before if name.startswith(tuple(unwanted))}\n"
        "    assert not found, (words, found)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["doctor"], ["teams", "--json"], ["run", "coder-reviewer", "x", "-p", "-m", PRIMES]]
)
def test_a_reader_that_goes_away_is_no_crash(tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "coderoom", *arguments]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as output:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(), stdout=output, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.slow
def test_a_full_disk_is_no_bug(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "coderoom", "teams"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "coderoom: The output cannot be written: No space left on device.\n")


@pytest.mark.slow
def test_an_old_character_set_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('\u2713 done')", encoding="utf-8")
    env = {"PYTHONIOENCODING": "latin1", "PYTHONUTF8": "0"}
    done = coderoom_process("exec", "a.py", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "\n? done\n" in done.stdout


def test_no_standard_input_is_a_wrong_request(tmp_path: Path) -> None:
    command = f"{sys.executable} -m coderoom exec - <&-"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert done.returncode == 2
    assert b"standard input" in done.stderr


@pytest.mark.parametrize("workspace", ["loop", "x" * 5000])
def test_a_workspace_that_cannot_be_is_a_wrong_request(tmp_path: Path, workspace: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = coderoom("run", "analyst", "x", "--model", REPLAY, "-w", workspace, cwd=tmp_path)
    assert done.returncode == 2
    assert "workspace" in done.stderr


def test_a_file_of_the_folder_passes_for_no_package(tmp_path: Path) -> None:
    (tmp_path / "autogen_evil.py").write_text("open('ran', 'w')")
    (tmp_path / "team.yaml").write_text("provider: autogen_evil.Team\nconfig: {}\n")
    # `-m` looks into the current folder first.
    assert coderoom_process("validate", "team.yaml", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_json_is_lossless_and_a_closed_output_interrupts(tmp_path: Path, encoding: str) -> None:
    def run(*arguments: str, reads: int = -1) -> tuple[bytes, int]:
        env = {"PYTHONIOENCODING": encoding, "CODEROOM_JOURNAL": str(tmp_path / "j.sqlite3")}
        env = environment(env | {"DOCKER_HOST": "unix:///nowhere"})
        command = [sys.executable, "-m", "coderoom", *arguments]
        with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            found = process.stdout.read(reads)
        return found, process.returncode

    model = recording(tmp_path / "r.json", [python("import time; time.sleep(0.5); print(1)"), "\u4e2d\u00e9"])
    facts = json.loads(run("run", "code-act", "\u4e2d", "--model", model, "--json")[0])
    assert (facts["task"], facts["answer"]) == ("\u4e2d", "\u4e2d\u00e9")
    (tmp_path / "n.md").write_text("```python\nprint(chr(0xd800), chr(0x4e2d))\n```\n```python\n1\n```\n")
    assert "\u4e2d" in str(json.loads(run("exec", "n.md", "--json")[0]))
    (tmp_path / "team.yaml").write_text("provider: coderoom.teams.CodingTeam\nconfig: {max_turns: .nan}\n")
    shown = json.loads(run("show", "team.yaml", "--json")[0], parse_constant=pytest.fail)
    assert shown["config"] == {"max_turns": None}
    assert run("exec", "n.md", reads=1)[1] == 141
    runs = json.loads(run("runs", "--json")[0])["runs"]
    assert "cancelled" in (runs[0].get("state"), runs[0].get("outcome"))
    run("exec", "n.md", "--wall", "docker")
    assert json.loads(run("runs", "--json")[0])["runs"][0]["outcome"] == "failed"

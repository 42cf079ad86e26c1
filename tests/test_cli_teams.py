"""The commands about teams, further tasks, limits, and the user's config file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from socket import create_server

import pytest

from coderoom.configs import make_schema, shipped_teams, write_starter
from coderoom.errors import RequestError
from tests.support.commands import coderoom, recording
from tests.support.openai_server import Failure, OpenAIServer, Reply

FINAL = ["```python\nx = 41\nprint('set')\n```", "It is set.", "```python\nprint(x + 1)\n```", "It is 42."]
SLOW = "```python\nimport time\nprint('begun', flush=True)\ntime.sleep(60)\n```"


@pytest.mark.slow
def test_shipped_teams_are_listed_and_shown(tmp_path: Path) -> None:
    listed = json.loads(coderoom("teams", "--json", cwd=tmp_path).stdout)["teams"]
    assert {each["name"]: each["description"] for each in listed} == shipped_teams()
    for name in shipped_teams():
        assert name in coderoom("teams", cwd=tmp_path).stdout
        done = coderoom("show", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "model client: " in done.stdout
    assert "code executor: SandboxCodeExecutor" in coderoom("show", "coder-reviewer", cwd=tmp_path).stdout


def test_the_schema_of_team_files_is_printed_or_written_but_over_nothing(tmp_path: Path) -> None:
    printed = coderoom("schema", cwd=tmp_path).stdout
    assert json.loads(printed) == json.loads(json.dumps(make_schema()))
    (tmp_path / "there.json").write_text("mine")
    assert coderoom("schema", "--out", "there.json", cwd=tmp_path).returncode == 2
    assert (tmp_path / "there.json").read_text() == "mine"
    assert coderoom("schema", "--out", "there.json", "--force", cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "there.json").read_text()) == json.loads(printed)


def test_a_key_in_a_file_is_not_shown(tmp_path: Path) -> None:
    model = {"provider": "x.Model", "config": {"api_key": "sk-secret", "base_url": "${URL}", "token": "${TOKEN}"}}
    (tmp_path / "t.json").write_text(json.dumps({"provider": "x.Team", "config": {"model_client": model}}))
    for arguments in (["show", "t.json"], ["show", "t.json", "--json"]):
        shown = coderoom(*arguments, cwd=tmp_path).stdout
        assert "sk-secret" not in shown
        assert "${TOKEN}" in shown


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "config: {}\n", "provider: 3\n"])
def test_what_is_no_team_is_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.yaml").write_text(text)
    done = coderoom("show", "t.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("t.yaml:")


@pytest.mark.parametrize("more", [[], ["--team", "code-act", "--model", "gpt-5"]])
def test_a_starter_is_valid_and_replaces_nothing(tmp_path: Path, more: list[str]) -> None:
    assert coderoom("init", "--yes", *more, cwd=tmp_path).returncode == 0
    text = (tmp_path / "team.yaml").read_text()
    assert "\n# " in text
    assert ("${CODEROOM_MODEL:-gpt-5}" in text) == bool(more)
    assert coderoom("validate", "team.yaml", cwd=tmp_path).stdout == "team.yaml: ok\n"
    again = coderoom("init", "--yes", cwd=tmp_path)
    assert (again.returncode, (tmp_path / "team.yaml").read_text()) == (2, text)
    assert "--force" in again.stderr


def test_the_starter_runs(tmp_path: Path) -> None:
    approved = json.dumps({"approved": True, "issues": [], "summary": "Fine."})
    model = recording(tmp_path / "r.json", ["```python\nprint(42)\n```", "It is 42.", approved])
    assert coderoom("init", "-y", cwd=tmp_path).returncode == 0
    done = coderoom("run", "team.yaml", "Compute it.", "--model", model, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_chat_keeps_conversation_and_variables(tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", FINAL)
    done = coderoom(
        "chat", "code-act", "--model", model, cwd=tmp_path, stdin="help\nSet x.\nAdd one.\nexit\nnever read\n"
    )
    assert done.returncode == 0, done.stderr
    assert "It is 42." in done.stdout
    assert done.stdout.count("outcome") >= 2
    assert "never read" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value", "outcome", "words"),
    [
        ("--max-seconds", "2", "unfinished", r"of\s+2\s+s\b"),
        ("--timeout", "1", "timeout", ""),
    ],
)
def test_a_run_ends_at_its_limits(tmp_path: Path, option: str, value: str, outcome: str, words: str) -> None:
    model = recording(tmp_path / "r.json", [SLOW, "Done."])
    done = coderoom("run", "coder-executor", "Wait.", "--model", model, option, value, "--max-turns", "2", cwd=tmp_path)
    assert done.returncode == 1
    assert f"outcome  {outcome}" in done.stderr
    assert re.search(words, done.stderr)


def test_a_setting_that_nothing_has_is_refused(tmp_path: Path) -> None:
    done = coderoom("run", "test-driven", "x", "--model", recording(tmp_path / "r.json", []), "--network", cwd=tmp_path)
    assert done.returncode == 2
    assert "network cannot be set" in done.stderr


@pytest.mark.parametrize("command", [["run", "code-act", "x"], ["mcp"]])
def test_a_timeout_that_nothing_may_have_is_refused_with_its_limit(command: list[str], tmp_path: Path) -> None:
    done = coderoom(*command, "--timeout", "1e9", cwd=tmp_path)
    assert done.returncode == 2
    assert "'--timeout': Input should be less than or equal to 86400" in done.stderr


def test_the_users_config_file_sets_what_nothing_else_sets(tmp_path: Path) -> None:
    folder = tmp_path / "xdg" / "coderoom"
    folder.mkdir(parents=True)
    env = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    (tmp_path / "a.py").write_text("print(1)")
    (folder / "config.yaml").write_text("wall: none\nworkspace: here\n")

    def isolation(more: dict[str, str]) -> str:
        done = coderoom("exec", "a.py", "--json", cwd=tmp_path, env=env | more)
        return str(json.loads(done.stdout)["isolation"])

    assert isolation({}) == "none"
    assert isolation({"CODEROOM_WALL": "namespaces"}) == "namespaces"
    assert "sets wall: none, workspace: here" in " ".join(coderoom("doctor", cwd=tmp_path, env=env).stdout.split())
    model = recording(tmp_path / "r.json", ["```python\nopen('made', 'w')\n```"])
    assert coderoom("run", "coder-executor", "x", "--model", model, cwd=tmp_path, env=env).returncode == 0
    assert (tmp_path / "here" / "made").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modle: x\n", ":1: modle: unknown key 'modle'; did you mean 'model'?"),
        ("wall: 3\n", ":1: wall: expected a text"),
    ],
)
def test_mistakes_in_the_users_config_file_have_their_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "coderoom").mkdir()
    (tmp_path / "coderoom" / "config.yaml").write_text(text)
    done = coderoom("teams", cwd=tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.slow
def test_models_are_listed_and_checked(tmp_path: Path) -> None:
    listed = json.loads(coderoom("models", "--json", cwd=tmp_path).stdout)
    assert (listed["default"], listed["checks"]) == ("openai:gpt-4o", [])
    assert {each["name"]: each["missing"] for each in listed["services"]}["gemini"] == [
        "GEMINI_API_KEY or GEMINI_BASE_URL"
    ]
    assert "- gemini       needs GEMINI_API_KEY or GEMINI_BASE_URL" in coderoom("models", cwd=tmp_path).stdout
    with OpenAIServer(["ready", Failure(401, message="Incorrect API key provided.")]) as server:
        good = coderoom("models", f"{server.base_url}#my-own", cwd=tmp_path)
        bad = coderoom("models", "--check", cwd=tmp_path, env={"CODEROOM_MODEL": f"{server.base_url}#my-own"})
        server.add("ready", "ready")
        env = {"CODEROOM_MODEL": f"{server.base_url}#my-own", "GEMINI_API_KEY": "k", "GEMINI_BASE_URL": server.base_url}
        both = json.loads(coderoom("models", "--check", "--json", cwd=tmp_path, env=env).stdout)["checks"]
    assert [each["answer"] for each in both] == ["ready", "ready"]
    assert both[1]["model"].startswith("gemini:")
    assert (good.returncode, bad.returncode) == (0, 1)
    assert "'ready' after" in good.stdout
    assert "Incorrect API key" in bad.stdout
    assert "Check the key" in bad.stdout
    assert coderoom("models", "nonsense", cwd=tmp_path).returncode == 2
    assert coderoom("models", "--check", cwd=tmp_path).returncode == 3


@pytest.mark.slow
def test_help_has_words_and_no_types(tmp_path: Path) -> None:
    for command in ("run", "exec", "solve", "validate", "convert", "init", "chat", "cache show"):
        shown = coderoom(*command.split(), "--help", cwd=tmp_path, env={"COLUMNS": "80"}).stdout
        assert not re.search(r"<\w+>", shown)
        assert not re.search(r"(?<!\$)\{", shown)
    for group in ((), ("runs",), ("cache",)):  # A description that is too long would be cut.
        lines = coderoom(*group, "--help", cwd=tmp_path, env={"COLUMNS": "80"}).stdout.splitlines()[1:]
        assert not [line for line in lines if line.endswith("...")]
    assert "Did you mean 'validate'?" in coderoom("valdate", cwd=tmp_path).stderr
    assert coderoom("version", cwd=tmp_path).stdout == coderoom("--version", cwd=tmp_path).stdout


def test_a_run_says_what_it_costs_by_the_users_prices_too(tmp_path: Path) -> None:
    reply = Reply("```python\nprint(1)\n```", usage=(1_000_000, 100_000))
    (tmp_path / "prices.yaml").write_text("my-own: [2, 30]\n")
    # The server is not OpenAI's.
    for model, price in {"gpt-4o-2024-08-06": None, "my-own": 5.0, "other": None}.items():
        with OpenAIServer([reply]) as server:
            arguments = ["run", "coder-executor", "x", "--max-turns", "2", "--model", f"{server.base_url}#{model}"]
            done = coderoom(*arguments, cwd=tmp_path, env={"CODEROOM_PRICES": "prices.yaml"})
        assert ("cost" in done.stderr) == (price is not None)
        assert price is None or f"cost     ${price:.2f} " in done.stderr


def test_runs_are_listed_in_columns(tmp_path: Path) -> None:
    env = {"CODEROOM_JOURNAL": "journal.sqlite3"}
    for team in ("code-act", "coder-reviewer"):
        model = recording(tmp_path / "r.json", ["Hello."])
        coderoom("run", team, "Compute it.", "--max-turns", "1", "--model", model, cwd=tmp_path, env=env)
    model = recording(tmp_path / "r.json", ["No."])
    coderoom("solve", "Compute it.", "--model", model, cwd=tmp_path, env=env)
    lines = coderoom("runs", cwd=tmp_path, env=env).stdout.splitlines()
    assert len({line.index("Compute it.") for line in lines}) == 1
    assert [line.split()[4] for line in lines] == ["solve", "coder-reviewer", "code-act"]


def test_a_service_without_a_key_is_not_said_to_be_set_up(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        env = {"VLLM_BASE_URL": address, "OLLAMA_HOST": address.removeprefix("http://")}
        shown = coderoom("models", cwd=tmp_path, env=env).stdout
    assert "✓ vllm         is set up\n" in shown
    assert "✓ ollama       is set up\n" in shown or "- ollama       needs pip install" in shown
    shown = coderoom("models", cwd=tmp_path, env=env).stdout
    assert f"- vllm         needs a server at {address}\n" in shown
    assert f"a server at {address}\n" in shown.partition("- ollama")[2]


def test_a_model_that_is_no_name_is_not_written(tmp_path: Path) -> None:
    done = coderoom("init", "--model", "?", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no model '?'" in done.stderr
    for wrong in ("gpt 4o", "openai:", "-"):
        with pytest.raises(RequestError, match="there is no model"):
            write_starter(tmp_path / "team.yaml", model=wrong)


def test_mistakes_in_the_users_prices_come_before_the_first_request(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("a: [1, 2]\nb: 3\n")
    model = recording(tmp_path / "r.json", [])
    for command in ("run", "coder-executor"), ("solve",):
        done = coderoom(*command, "x", "--model", model, cwd=tmp_path, env={"CODEROOM_PRICES": "prices.yaml"})
        assert done.returncode == 2
        assert "prices.yaml:2: b: expected the prices of a million tokens" in done.stderr


def test_code_that_waits_for_approval_is_shown_once(tmp_path: Path) -> None:
    reply = "First.\n\n```python\nprint(6 * 7)\n```\n\nThe data:\n\n```json\n[1]\n```"
    model = recording(tmp_path / "r.json", [reply, "It is 42."])
    done = coderoom("run", "human-approves", "x", "--model", model, cwd=tmp_path, stdin="y\n")
    assert done.returncode == 0
    assert done.stdout == "It is 42.\n"
    assert done.stderr.count("print(6 * 7)") == 1
    assert "[y/N/e] \n" in done.stderr  # The answer was not typed at a terminal, which ends the line.
    assert all(text in done.stderr for text in ("First.", "The data:", "[1]"))

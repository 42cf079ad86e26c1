"""`coderoom convert`: AutoGen's team files with CodeRoom's agents and executors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
from autogen_agentchat.conditions import TextMentionTermination, TokenUsageTermination
from autogen_agentchat.teams import SelectorGroupChat
from autogen_core import ComponentLoader
from autogen_core.code_executor import CodeExecutor
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from autogen_ext.models.openai import OpenAIChatCompletionClient

from tests.support.commands import coderoom, recording

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
KEYS = {"OPENAI_API_KEY": "sk-1"}


def dumped(folder: Path, **more: Any) -> Path:
    """A file with the dump that AutoGen makes of a team."""
    model = OpenAIChatCompletionClient(model="gpt-4o", api_key="sk-secret")
    local: CodeExecutor = LocalCommandLineCodeExecutor(timeout=20, work_dir=folder / "coding")
    team = SelectorGroupChat(
        [
            CodeExecutorAgent("coder", local, model_client=model, max_retries_on_error=1),
            CodeExecutorAgent("runner", DockerCommandLineCodeExecutor()),
            AssistantAgent("critic", model),
        ],
        model,
        selector_prompt="Who of {participants} is next?",
        termination_condition=TextMentionTermination("APPROVED") | TokenUsageTermination(9000),
        max_turns=1,
    )
    data = team.dump_component().model_dump(mode="json", exclude_none=True)
    data["config"]["participants"][0]["config"].update(more)
    file = folder / "autogen.json"
    file.write_text(json.dumps(data))
    return file


@pytest.mark.parametrize("name", ["team.json", "team.yaml"])
def test_a_dump_of_autogen_is_converted_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    # What the dump has lost is added by hand.
    file = dumped(tmp_path, max_retries_on_error=1)
    done = coderoom("convert", file.name, "--out", name, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    notes = {note["path"]: note["message"] for note in made["notes"]}
    executor = "config.participants[0].config.code_executor"
    assert "cleanup_temp_files" in notes[f"{executor}.config.cleanup_temp_files"]
    assert "stays" in notes["config.participants[1].config.code_executor"]
    assert "for one process" in notes["config.participants[1].config.code_executor.config.container_name"]
    assert "masked" in notes["config.model_client.config.api_key"]
    assert "max_prompt_token" in made["diff"]

    valid = json.loads(coderoom("validate", name, "--json", cwd=tmp_path).stdout)["files"][0]
    assert (valid["problems"], valid["warnings"]) == ([], [])
    if name.endswith(".json"):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
        team = ComponentLoader.load_component(json.loads((tmp_path / name).read_text()), SelectorGroupChat)
        config = team.dump_component().config["participants"][0]["config"]
        assert config["max_retries_on_error"] == 1
        assert config["code_executor"]["config"]["state"] == "fresh"
    code = "```python\nimport os\nprint(6 * 7, os.environ.get('OPENAI_API_KEY'))\n```"
    model = recording(tmp_path / "r.json", ["coder", "```python\nprint(1 / 0)\n```", '{"retry": true}', code, "42."])
    ran = coderoom("run", name, "Compute.", "--model", model, "--json", cwd=tmp_path, env=KEYS)
    run = json.loads(ran.stdout)
    assert (ran.returncode, run["outcome"], run["attempts"]) == (0, "ok", 2), ran.stdout
    assert "42 None" in ran.stdout

    again = coderoom("convert", name, cwd=tmp_path)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, f"{name}: nothing to convert")


YAML = """\
# Runs the code of others.
provider: autogen_agentchat.agents.CodeExecutorAgent
config:
  name: coder
  model_client:
    provider: OpenAIChatCompletionClient  # any model
    config: {model: "${MODEL_NAME}", api_key: sk-in-the-file}
  code_executor:
    provider: autogen_ext.code_executors.local.LocalCommandLineCodeExecutor
    config:
      timeout: 30
"""


def test_a_file_of_ones_own_keeps_comments_and_references_and_shows_no_key(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML)
    shown = coderoom("convert", "a.yaml", cwd=tmp_path)
    assert (shown.returncode, [*tmp_path.iterdir()]) == (0, [tmp_path / "a.yaml"])
    assert "+    - provider: coderoom.agents.CodeExecutorAgent" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "sk-in-the-file" not in shown.stdout
    assert "coderoom convert a.yaml --out FILE" in shown.stdout
    refused = coderoom("convert", "a.yaml", "--out", "a.yaml", cwd=tmp_path)
    assert (refused.returncode, (tmp_path / "a.yaml").read_text()) == (2, YAML)
    assert "--force" in refused.stderr
    assert coderoom("convert", "a.yaml", "--out", "a.yaml", "--force", cwd=tmp_path).returncode == 0
    text = (tmp_path / "a.yaml").read_text()
    for part in (
        "# Runs the code of others.",
        "# any model",
        '"${MODEL_NAME}"',
        "sk-in-the-file",
        "system_message: ''",
    ):
        assert part in text
    assert coderoom("validate", "a.yaml", cwd=tmp_path, env={"MODEL_NAME": "gpt-4o"}).stdout == "a.yaml: ok\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("timeout: 30", "timeout: soon", "a.yaml:11: config.code_executor.config.timeout: expected a number"),
        ("timeout: 30", "timeot: 30", "a.yaml:11: config.code_executor.config.timeot: unknown key 'timeot'; did you"),
        (
            "    config:\n      timeout: 30",
            "    config: 3",
            "a.yaml:10: config.code_executor.config: expected a mapping",
        ),
        ("config:\n  name", "config: [\n  name", "a.yaml:"),
    ],
)
def test_a_broken_file_has_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(YAML.replace(old, new))
    done = coderoom("convert", "a.yaml", "--out", "b.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "b.yaml").exists()

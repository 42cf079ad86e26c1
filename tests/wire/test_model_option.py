"""The model of `--model openai:NAME`, over the wire."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from autogen_agentchat.agents import AssistantAgent

from coderoom.configs import make_model
from tests.support.commands import ROOT, coderoom
from tests.support.openai_server import Failure, OpenAIServer, Reply


async def test_autogens_assistant_gets_the_tokens_of_its_stream() -> None:
    with OpenAIServer([Reply("Hello there.", usage=(30, 12))]) as server:
        client = make_model("openai:gpt-4o", env={"OPENAI_BASE_URL": server.base_url})
        assistant = AssistantAgent("assistant", client, model_client_stream=True)
        result = await assistant.run(task="Hi.")
        await client.close()
    used = result.messages[-1].models_usage
    assert used is not None
    assert (used.prompt_tokens, used.completion_tokens) == (30, 12)


def test_it_is_dumped_as_autogens_client() -> None:
    client = make_model("openai:gpt-4o", env={"OPENAI_API_KEY": "sk-x"})
    assert client.dump_component().provider == "autogen_ext.models.openai.OpenAIChatCompletionClient"


CODE = "```python\nprint(sum(range(101)))\n```"
VERDICT = json.dumps({"approved": True, "issues": [], "summary": "Right."})


@pytest.mark.parametrize("option", [["--model", "openai:some-new-model"], []], ids=["option", "environment"])
def test_a_shipped_team_runs_with_the_real_client(tmp_path: Path, option: list[str]) -> None:
    with OpenAIServer([Reply(CODE, usage=(20, 5)), Reply(VERDICT, usage=(40, 7))]) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test"}
        done = coderoom("run", "analyst", "Sum up to 100.", *option, "--json", cwd=tmp_path, env=env)
        bodies = [request.body for request in server.requests]
    run = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (run["outcome"], run["approved"], run["answer"].strip()) == ("ok", True, "5050")
    assert run["usage"] == {"prompt_tokens": 60, "completion_tokens": 12, "total_tokens": 72}
    assert [body["model"] for body in bodies] == (["some-new-model"] * 2 if option else ["gpt-4o"] * 2)
    assert done.stderr == ""
    assert "sk-test" not in done.stdout


def test_a_refused_key_is_told_with_the_way_out(tmp_path: Path) -> None:
    with OpenAIServer([Failure(401, code="invalid_api_key")], repeat=True) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-secret"}
        done = coderoom("run", "coder-reviewer", "Do it.", cwd=tmp_path, env=env)
    text = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert "AuthenticationError" in text
    assert "OPENAI_API_KEY" in text
    assert "Traceback" not in done.stdout + done.stderr
    assert "sk-secret" not in done.stdout + done.stderr


@pytest.mark.slow
def test_the_recorded_demo_needs_no_service(tmp_path: Path) -> None:
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:1", "OPENAI_API_KEY": "sk-test"}
    arguments = ["--file", str(ROOT / "examples/nile.csv"), "--model", f"replay:{ROOT}/examples/nile.replay.yaml"]
    done = coderoom("run", "analyst", "When?", *arguments, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr

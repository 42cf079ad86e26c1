"""`execute_code` where something goes wrong: the code, the model, the request, or what runs it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_ext.models.replay import ReplayChatCompletionClient
from openai import AuthenticationError

from coderoom import execute_code
from coderoom.configs import ReplayModel
from coderoom.errors import ConfigError, MissingDependencyError, ModelError, RequestError, SandboxUnavailable
from coderoom.sandbox import Limits, Sandbox
from tests.runs.answers import asked, children, model, python
from tests.support.commands import recording
from tests.support.openai_server import Failure, OpenAIServer, Reply, Stall

BAD = "print('so far')\nvalues = []\nresult = values[0]"
GOOD = "result = 42"
# What the service calls the model that it is asked for as `gpt-4o-mini`.
MINI = "gpt-4o-mini-2024-07-18"
FORBIDDEN = ["import os", "import requests", "import subprocess", "eval('1+1')", "open('config.txt')"]

# --- Code that fails ---


async def test_failed_code_is_shown_to_the_model_with_its_error() -> None:
    client = model(BAD, GOOD)
    answer = await execute_code("Do it.", model=client)
    assert (answer["success"], answer["result"], answer["attempts"]) == (True, 42, 2)
    assert (answer["code"], answer["error"], answer["stdout"]) == (GOOD, None, "")
    first, own, complaint = asked(client, 1)
    assert first == ("User", "Do it.")
    assert own == ("Assistant", python(BAD))
    assert complaint[0] == "User"
    assert "IndexError: list index out of range" in complaint[1]
    assert "result = values[0]" in complaint[1]
    assert "so far" in complaint[1]
    assert answer["usage"]["completion_tokens"] == client.total_usage().completion_tokens > 0


async def test_the_last_failure_is_the_answer_when_no_retry_is_left() -> None:
    client = model("1 / 0", BAD, "result = {}['key']")
    answer = await execute_code("Do it.", model=client, max_retries=1)
    assert (answer["success"], answer["result"], answer["outcome"], answer["attempts"]) == (False, None, "error", 2)
    assert answer["error"] == "IndexError: list index out of range (line 3)"
    assert (answer["code"], answer["stdout"]) == (BAD, "so far\n")
    assert "result = values[0]" in answer["stderr"]
    assert len(client.create_calls) == 2


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("def f(:", "SyntaxError: invalid syntax (<cell 1>, line 1)"),
        ("raise SystemExit('a reason')", "Exit: exit code 1"),
        ("raise RuntimeError", "RuntimeError (line 1)"),
        ("getattr('', '__cl' + 'ass__')", "PermissionError: `__class__` is not allowed here: use `type(x)` (line 1)"),
    ],
)
async def test_the_error_is_a_line(code: str, error: str) -> None:
    answer = await execute_code("Do it.", model=model(code), max_retries=0)
    assert (answer["success"], answer["outcome"], answer["error"]) == (False, "error", error)


async def test_a_model_is_told_what_code_said_when_it_ended_itself() -> None:
    client = model("raise SystemExit('the data has a gap')", GOOD)
    assert (await execute_code("Do it.", model=client))["success"]
    assert "the data has a gap" in asked(client, 1)[-1][1]


async def test_the_same_failure_of_the_same_code_ends_it() -> None:
    client = model(BAD, BAD, GOOD)
    answer = await execute_code("Do it.", model=client, max_retries=5)
    assert (answer["success"], answer["attempts"], len(client.create_calls)) == (False, 2, 2)


@pytest.mark.parametrize("code", FORBIDDEN)
async def test_what_the_policy_refuses_goes_back_to_the_model(code: str) -> None:
    answer = await execute_code("Do what is forbidden.", model=model(code, GOOD))
    assert (answer["success"], answer["attempts"]) == (True, 2)
    client = model(code, GOOD)
    answer = await execute_code("Do what is forbidden.", model=client, max_retries=0)
    assert (answer["success"], answer["outcome"], answer["attempts"]) == (False, "rejected", 1)
    assert answer["error"] is not None
    assert "not allowed" in answer["error"]
    assert answer["code"] == code
    assert len(client.create_calls) == 1


async def test_the_modules_that_the_model_is_told_of_may_be_imported() -> None:
    client = model(GOOD)
    await execute_code("Do it.", model=client)
    [modules] = re.findall(r"It may import ([^;.]*), and nothing else", client.create_calls[0]["messages"][0].content)
    assert "statistics" in modules
    everything = model(f"import {modules}\nresult = 'all there'")
    assert (await execute_code("Do it.", model=everything))["result"] == "all there"


async def test_the_model_is_told_how_long_its_code_may_take() -> None:
    client = model(GOOD)
    await execute_code("Do it.", model=client, timeout=7.5)
    assert "7.5 seconds" in client.create_calls[0]["messages"][0].content


async def test_an_endless_loop_is_stopped_and_mended() -> None:
    client = model("print('begun', flush=True)\nwhile True: pass", GOOD)
    answer = await execute_code("Do it.", model=client, timeout=0.5)
    assert answer["result"] == 42
    assert "Timeout: the code was stopped after 0.5 seconds" in asked(client, 1)[-1][1]
    assert "begun" in asked(client, 1)[-1][1]


@pytest.mark.parametrize(
    ("limits", "code", "outcome", "error"),
    [
        (Limits(), "import time\ntime.sleep(60)", "timeout", "Timeout: the code was stopped after 0.7 seconds."),
        (
            Limits(memory_bytes=256 << 20),
            "result = bytearray(1 << 30)",
            "memory",
            "Memory: the code wanted more than the 256 MiB that it may have.",
        ),
    ],
)
async def test_a_limit_is_an_outcome(limits: Limits, code: str, outcome: str, error: str) -> None:
    async with Sandbox(policy="restricted", limits=limits) as sandbox:
        answer = await execute_code("Do it.", model=model(code), timeout=0.7, max_retries=0, sandbox=sandbox)
    assert (answer["success"], answer["outcome"], answer["error"]) == (False, outcome, error)


async def test_processor_time_is_a_limit_too() -> None:
    async with Sandbox(policy="restricted", limits=Limits(cpu_seconds=0.5)) as sandbox:
        answer = await execute_code(
            "Do it.", model=model("while True: pass"), timeout=60, max_retries=0, sandbox=sandbox
        )
    assert answer["outcome"] == "timeout"
    assert answer["error"] == "Timeout: the code used more than its 0.5 seconds of processor time."


async def test_output_is_bounded_for_the_caller_and_for_the_model() -> None:
    client = model("print('a' * 5000 + 'z')\nraise ValueError('m' * 5000)", "print('b' * 5000)\nresult = 1")
    answer = await execute_code("Do it.", model=client, max_output=1000)
    assert answer["result"] == 1
    assert answer["truncated"] is True
    assert len(answer["stdout"]) <= 1000
    assert "characters left out" in answer["stdout"]
    assert 1000 < len(asked(client, 1)[-1][1]) < 2500


# --- Answers without code ---


async def test_an_answer_without_code_is_asked_for_once_more() -> None:
    client = ReplayModel(["It is 42.", python(GOOD)])
    answer = await execute_code("Do it.", model=client)
    assert (answer["result"], answer["attempts"]) == (42, 1)
    said, reminded = asked(client, 1)[1:]
    assert said == ("Assistant", "It is 42.")
    assert reminded[1].startswith("There is no Python code in your answer")


@pytest.mark.parametrize("words", ["It is 42.", "", "```sh\necho 42\n```", "```python\n\n```"])
async def test_words_alone_are_no_answer(words: str) -> None:
    client = ReplayModel([words, words, python(GOOD)])
    answer = await execute_code("Do it.", model=client)
    assert (answer["success"], answer["result"], answer["outcome"], answer["code"]) == (False, None, "no_code", "")
    assert answer["error"] is not None
    assert "no Python code" in answer["error"]
    said = f"It said: {' '.join(words.split())!r}" if words else "Its reply was empty."
    assert said in answer["error"]
    assert (answer["attempts"], len(client.create_calls)) == (0, 2)
    assert answer["usage"]["prompt_tokens"] > 0


async def test_a_draft_in_the_models_thoughts_is_not_run() -> None:
    answer = await execute_code("Do it.", model=ReplayModel([f"<think>{python('result = 1')}</think>{python(GOOD)}"]))
    assert (answer["result"], answer["code"], answer["attempts"]) == (42, GOOD, 1)


async def test_code_that_is_cut_off_is_not_run() -> None:
    cut = "```python\nresult = 4"
    client = ReplayModel([cut, cut])
    answer = await execute_code("Do it.", model=client)
    assert (answer["outcome"], answer["attempts"]) == ("no_code", 0)
    assert answer["error"] is not None
    assert "cut off" in answer["error"]
    assert asked(client, 1)[-1][1].startswith("Your answer is cut off")


async def test_words_cannot_talk_a_failure_away() -> None:
    client = ReplayModel([python(BAD), "It works now: 42.", "Really, it is 42."])
    answer = await execute_code("Do it.", model=client)
    assert (answer["success"], answer["outcome"], answer["code"], answer["attempts"]) == (False, "error", BAD, 1)


# --- What is our failure, or the caller's ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prompt": ""}, "prompt ''"),
        ({"prompt": " \n"}, r"prompt ' \\n'"),
        ({"prompt": 5}, "prompt 5"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"timeout": float("inf")}, "timeout=inf"),
        ({"timeout": "5"}, "timeout='5'"),
        ({"timeout": True}, "timeout=True"),
        ({"max_output": 199}, "max_output=199"),
        ({"max_retries": -1}, "max_retries=-1"),
        ({"max_retries": 1.5}, "max_retries=1.5"),
        ({"sandbox": "bubblewrap"}, "sandbox='bubblewrap'"),
        ({"model": "gpt-4o"}, "there is no model 'gpt-4o'"),
        ({"model": 4}, "expected a model client"),
    ],
)
async def test_a_wrong_request_is_refused_before_a_model_is_asked(arguments: dict[str, Any], words: str) -> None:
    client = model(GOOD)
    wrong = {"prompt": "Do it.", "model": client, **arguments}
    with pytest.raises(RequestError, match=words):
        await execute_code(**wrong)
    assert client.create_calls == []


async def test_without_a_wall_no_model_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setenv("CODEROOM_WALL", "docker")
    client = model(GOOD)
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        await execute_code("Do it.", model=client)
    assert client.create_calls == []


async def test_a_model_that_fails_is_our_failure_and_no_answer() -> None:
    client = ReplayChatCompletionClient([], model_info=None)
    with pytest.raises(ModelError, match="The model ReplayChatCompletionClient failed: ValueError") as caught:
        await execute_code("Do it.", model=client)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_recording_that_is_too_short_says_so(tmp_path: Any) -> None:
    spec = recording(tmp_path / "talk.json", [python(BAD)])
    with pytest.raises(RequestError, match=r"'talk\.json' has 1 reply"):
        await execute_code("Do it.", model=spec)


async def test_a_cancelled_token_ends_running_code() -> None:
    token = CancellationToken()
    before = children()
    async with Sandbox(policy="restricted") as shared:
        stood = children()
        running = asyncio.ensure_future(
            execute_code(
                "Do it.", model=model("while True: pass"), timeout=60, sandbox=shared, cancellation_token=token
            )
        )
        await asyncio.sleep(0.5)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert children() == stood
        assert (await shared.run("1 + 1")).value == 2
    assert children() - before == set()


# --- Models by name, over the wire ---


@pytest.fixture
def keyless(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEROOM_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def test_a_real_client_repairs_its_code(keyless: pytest.MonkeyPatch) -> None:
    with OpenAIServer(
        [Reply(python(BAD), usage=(100, 20)), Reply(python(GOOD), usage=(150, 10))], model=MINI
    ) as server:
        keyless.setenv("OPENAI_BASE_URL", server.base_url)
        answer = await execute_code("Do it.", model="openai:gpt-4o-mini")
        requests = server.requests
    assert (answer["result"], answer["attempts"]) == (42, 2)
    assert answer["usage"] == {"prompt_tokens": 250, "completion_tokens": 30, "total_tokens": 280}
    assert [request.body["model"] for request in requests] == ["gpt-4o-mini"] * 2
    roles = [message["role"] for message in requests[1].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert BAD in requests[1].messages[2]["content"]
    assert "IndexError: list index out of range" in requests[1].messages[3]["content"]


@pytest.mark.parametrize(
    ("named", "asked_for", "answers"),
    [
        ("", "gpt-4o", "gpt-4o-2024-08-06"),
        ("gpt-4.1", "gpt-4.1", "gpt-4.1-2025-04-14"),
        ("some/new-model:7b", "some/new-model:7b", None),
        ("openai:gpt-4o-mini", "gpt-4o-mini", MINI),
    ],
)
async def test_the_environment_names_the_model(
    keyless: pytest.MonkeyPatch, named: str, asked_for: str, answers: str | None
) -> None:
    with OpenAIServer([python(GOOD)], model=answers) as server:
        keyless.setenv("OPENAI_BASE_URL", server.base_url)
        keyless.setenv("CODEROOM_MODEL", named)
        answer = await execute_code("Do it.")
        assert server.requests[0].body["model"] == asked_for
    assert answer["result"] == 42


async def test_the_environment_may_name_a_file(keyless: pytest.MonkeyPatch, tmp_path: Any) -> None:
    keyless.setenv("CODEROOM_MODEL", recording(tmp_path / "talk.json", [python(GOOD)]))
    assert (await execute_code("Do it."))["result"] == 42
    file = tmp_path / "model.yaml"
    file.write_text("provider: coderoom.configs.ReplayModel\nconfig:\n  replies: ['```python\n\n    7\n\n    ```']\n")
    keyless.setenv("CODEROOM_MODEL", str(file))
    assert (await execute_code("Do it."))["result"] == 7
    file.write_text("provider: coderoom.configs.ReplayModel\nconfig: {}\n")
    with pytest.raises(ConfigError, match="replies"):
        await execute_code("Do it.")


async def test_a_missing_key_is_told_with_the_way_out(keyless: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDependencyError, match=r"set OPENAI_API_KEY.*model="):
        await execute_code("Do it.")


async def test_a_refused_key_is_told_with_the_way_out(keyless: pytest.MonkeyPatch) -> None:
    with OpenAIServer([Failure(401, code="invalid_api_key")], repeat=True) as server:
        keyless.setenv("OPENAI_BASE_URL", server.base_url)
        keyless.setenv("OPENAI_API_KEY", "sk-secret")
        with pytest.raises(ModelError, match=r"'openai:gpt-4o' failed: AuthenticationError.*OPENAI_API_KEY") as caught:
            await execute_code("Do it.", model="openai:gpt-4o")
    assert isinstance(caught.value.__cause__, AuthenticationError)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.slow
async def test_a_cancel_hangs_up_on_the_model(keyless: pytest.MonkeyPatch) -> None:
    with OpenAIServer([Stall(60)]) as server:
        keyless.setenv("OPENAI_BASE_URL", server.base_url)
        before = children()
        running = asyncio.ensure_future(execute_code("Do it.", model="openai:gpt-4o"))
        await asyncio.to_thread(server.wait_for_requests, 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(server.requests[0].hung_up.wait, 10)
    assert children() - before == set()

"""An agent whose code runs in a sandbox: state, outcomes, and attempts that begin from a clean state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken

from coderoom.agents import CodeExecutorAgent
from coderoom.errors import SandboxUnavailable
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from tests.agents.helpers import (
    BAD,
    GOOD,
    TASK,
    Client,
    MakeCoder,
    MakeTerminal,
    context_of,
    decide,
    facts_of,
    python,
    stream,
    text_of,
    turn,
)

# --- State and outcomes ---


async def test_variables_last_from_turn_to_turn(coder: MakeCoder, tmp_path: Path) -> None:
    client = Client(python("x = 40"), "Set.", python("x + 2"), "It is 42.")
    agent = coder(client, code_executor=SandboxCodeExecutor(tmp_path))
    await turn(agent, TASK)
    assert "42\n" in text_of(await turn(agent, "And now?"))


async def test_a_reset_forgets_the_variables(terminal: MakeTerminal, tmp_path: Path) -> None:
    agent = terminal(code_executor=SandboxCodeExecutor(tmp_path))
    await turn(agent, python("x = 40"))
    await agent.on_reset(CancellationToken())
    assert "NameError" in text_of(await turn(agent, python("x")))


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        ("while True: pass", "timeout", "stopped after 1 seconds"),
        ("x = bytearray(1 << 30)", "memory", "more memory than the 256 MiB"),
    ],
)
async def test_what_the_code_can_mend_is_tried_again(
    coder: MakeCoder, tmp_path: Path, code: str, outcome: str, words: str
) -> None:
    executor = SandboxCodeExecutor(tmp_path, timeout=1, limits={"memory_bytes": 256 << 20})
    client = Client(python(code), decide(True), GOOD, "Done.")
    agent = coder(client, code_executor=executor, max_retries_on_error=1)
    response = await turn(agent, TASK)
    assert (facts_of(response)["outcome"], facts_of(response)["attempts"]) == ("ok", "2")
    [told] = [text for text in await context_of(agent) if words in text]
    assert "Variables that were set before are still there" in told
    assert f"Attempt 1 failed ({outcome}" in " ".join(client.calls[1].texts)


async def test_what_the_policy_refuses_starts_no_repair(coder: MakeCoder, tmp_path: Path) -> None:
    executor = SandboxCodeExecutor(tmp_path, policy="restricted")
    client = Client(python("print(1)") + "\n\n" + python("import subprocess"))
    agent = coder(client, code_executor=executor, max_retries_on_error=3)
    response = await turn(agent, TASK)
    facts = facts_of(response)
    assert (facts["outcome"], facts["exit_code"], facts["ran"]) == ("rejected", "126", "false")
    assert (facts["attempts"], facts["stop_reason"]) == ("1", "rejected")
    assert len(client.calls) == 1
    for text in (text_of(response), (await context_of(agent))[-1]):
        assert "The sandbox's policy does not allow this code." in text
        assert "subprocess" in text
        assert "not approved" not in text


async def test_without_a_model_a_refusal_is_told_to_who_wrote_the_code(terminal: MakeTerminal, tmp_path: Path) -> None:
    agent = terminal(code_executor=SandboxCodeExecutor(tmp_path, policy="restricted"))
    response = await turn(agent, python("import subprocess"))
    assert facts_of(response)["outcome"] == "rejected"
    assert "policy does not allow" in text_of(response)
    assert "subprocess" in text_of(response)


async def test_a_sandbox_that_cannot_be_had_starts_no_repair(
    coder: MakeCoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    client = Client(GOOD)
    agent = coder(client, code_executor=SandboxCodeExecutor(tmp_path, wall="docker"), max_retries_on_error=3)
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        await turn(agent, TASK)
    assert len(client.calls) == 1
    assert not any("nowhere" in text for text in await context_of(agent))


async def test_an_output_beyond_what_is_kept_is_not_said_to_be_whole(terminal: MakeTerminal, tmp_path: Path) -> None:
    executor = SandboxCodeExecutor(tmp_path, limits={"output_bytes": 2000})
    agent = terminal(code_executor=executor, max_output_chars=500)
    response = await turn(agent, python("for i in range(10_000): print(i)"))
    file = Path(facts_of(response)["output_file"])
    assert f"more of its beginning and its end is in .coderoom/{file.name}" in text_of(response)
    assert "whole output" not in text_of(response)
    kept = file.read_text()
    assert kept.startswith("0\n1\n")
    assert kept.endswith("9999\n")
    assert "characters left out" in kept


async def test_links_of_the_code_do_not_lead_the_output_outside(terminal: MakeTerminal, tmp_path: Path) -> None:
    work, outside = tmp_path / "linked", tmp_path / "outside"
    outside.mkdir()
    agent = terminal(code_executor=SandboxCodeExecutor(work), max_output_chars=200)
    code = f"import os\nos.symlink({str(outside)!r}, '.coderoom')\nprint('x' * 1000)"
    response = await turn(agent, python(code))
    assert facts_of(response)["outcome"] == "ok"
    assert Path(facts_of(response)["output_file"]).read_text() == "x" * 1000 + "\n"
    assert list(outside.iterdir()) == []


# --- Where a further attempt begins ---

FIRST = python("seen = 'left behind'\nopen('left.txt', 'w').close()\nraise ValueError('first')")
LOOK = python("import os\nprint('seen' in globals(), os.listdir())")
UNDONE = "The failed attempt was undone"


async def test_a_retry_goes_on_from_where_the_failed_attempt_ended(coder: MakeCoder, tmp_path: Path) -> None:
    client = Client(FIRST, decide(True), LOOK, "Done.")
    agent = coder(client, code_executor=SandboxCodeExecutor(tmp_path), max_retries_on_error=1)
    assert "True ['left.txt']" in text_of(await turn(agent, TASK))
    assert not any(UNDONE in text for text in client.calls[2].texts)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({}, "variables and files are as they were"),
        ({"state": "fresh"}, "files are as they were"),
    ],
)
async def test_a_retry_can_begin_from_a_clean_state(
    coder: MakeCoder, tmp_path: Path, arguments: dict[str, Any], kept: str
) -> None:
    client = Client(FIRST, decide(True), LOOK, "Done.")
    executor = SandboxCodeExecutor(tmp_path, **arguments)
    agent = coder(client, code_executor=executor, max_retries_on_error=1, retry_from="clean")
    assert "False []" in text_of(await turn(agent, TASK))
    [told] = [text for text in client.calls[2].texts if UNDONE in text]
    assert kept in told
    # The decision's reason is still there.
    assert "a reason" in told


async def test_every_retry_of_a_turn_begins_where_the_turn_did(coder: MakeCoder, tmp_path: Path) -> None:
    count = python("n = globals().get('n', 0) + 1\nprint('n', n)\nraise ValueError(str(id(n)) + NUMBER)")
    replies = [count.replace("NUMBER", repr(str(number))) for number in range(3)]
    end = python("print('n', globals().get('n'))")
    client = Client(
        python("n = 5"),
        "Set.",
        replies[0],
        decide(True),
        replies[1],
        decide(True),
        replies[2],
        decide(True),
        end,
        "Done.",
    )
    executor = SandboxCodeExecutor(tmp_path)
    agent = coder(client, code_executor=executor, max_retries_on_error=3, retry_from="clean")
    await turn(agent, TASK)
    items = await stream(agent, "Again.")
    outputs = [item.to_text() for item in items if type(item).__name__ == "CodeExecutionEvent"]  # type: ignore[union-attr]
    assert [output.splitlines()[0] for output in outputs] == ["n 6", "n 6", "n 6", "n 5"]


async def test_a_process_that_died_is_brought_back(coder: MakeCoder, tmp_path: Path) -> None:
    die = python("import os\nos._exit(7)")
    client = Client(python("x = 42"), "Set.", die, decide(True), python("print('x is', x)"), "Done.")
    executor = SandboxCodeExecutor(tmp_path)
    agent = coder(client, code_executor=executor, max_retries_on_error=1, retry_from="clean")
    await turn(agent, TASK)
    assert "x is 42" in text_of(await turn(agent, "Again."))


async def test_what_could_not_be_kept_is_not_promised(coder: MakeCoder, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(100_000))
    client = Client(FIRST, decide(True), LOOK, "Done.")
    executor = SandboxCodeExecutor(tmp_path, limits={"disk_bytes": 65_536})
    agent = coder(client, code_executor=executor, max_retries_on_error=1, retry_from="clean")
    response = await turn(agent, TASK)
    assert "False [" in text_of(response)
    assert "left.txt" in text_of(response)
    [told] = [text for text in client.calls[2].texts if UNDONE in text]
    assert "undone: variables are as they were" in told


async def test_the_last_failure_is_left_as_it_is(coder: MakeCoder, tmp_path: Path) -> None:
    executor = SandboxCodeExecutor(tmp_path)
    agent = coder(
        Client(FIRST, decide(False), "No."), code_executor=executor, max_retries_on_error=1, retry_from="clean"
    )
    await turn(agent, TASK)
    assert (tmp_path / "left.txt").exists()


def test_an_executor_that_cannot_go_back_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'LocalCodeExecutor' cannot"):
        CodeExecutorAgent(
            "coder", LocalCodeExecutor(tmp_path), model_client=Client(BAD), max_retries_on_error=1, retry_from="clean"
        )
    with pytest.raises(ValueError, match="'failed', 'clean', not 'start'"):
        CodeExecutorAgent("coder", SandboxCodeExecutor(tmp_path), retry_from="start")  # type: ignore[arg-type]

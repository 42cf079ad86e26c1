"""What is run, who is asked, and what is told of it: CE8, CE10, CE13 to CE18."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import (
    BaseChatMessage,
    CodeExecutionEvent,
    HandoffMessage,
    MultiModalMessage,
    StopMessage,
    StructuredMessage,
    TextMessage,
    ToolCallSummaryMessage,
)
from autogen_core import Image
from autogen_core.code_executor import CodeBlock, CodeResult
from PIL import Image as Pictures
from pydantic import BaseModel

from coderoom.agents import ApprovalRequest, ApprovalResponse
from tests.agents.helpers import (
    BAD,
    COBOL,
    GOOD,
    TASK,
    Approver,
    BareExecutor,
    Client,
    KeepingExecutor,
    MakeCoder,
    MakeTerminal,
    context_of,
    decide,
    facts_of,
    python,
    text_of,
    texts,
    turn,
)

LINES = python("for number in range(3000):\n    print('line', number)")
WHOLE = "".join(f"line {number}\n" for number in range(3000))


# --- CE8: the output in bounds, the whole of it in a file ---


def assert_head_and_tail(shown: str, size: int) -> None:
    assert "line 0\nline 1\n" in shown
    assert "line 2998\nline 2999\n" in shown
    assert "line 1500\n" not in shown
    assert f"of {size:,} characters" in shown


async def test_ce08_models_and_peers_see_head_and_tail_and_the_size(coder: MakeCoder) -> None:
    client = Client(LINES, "Done.")
    response = await turn(coder(client, max_output_chars=500), TASK)
    output = client.calls[-1].texts[-1]
    assert_head_and_tail(output, len(WHOLE))
    assert len(output) <= 500
    assert_head_and_tail(text_of(response), len(WHOLE))
    assert len(text_of(response)) < 1000
    [event] = [event for event in response.inner_messages or [] if isinstance(event, CodeExecutionEvent)]
    assert len(event.result.output) <= 500


async def test_ce08_the_whole_output_is_in_the_file_that_is_named(coder: MakeCoder) -> None:
    response = await turn(coder(Client(LINES, "Done."), max_output_chars=500), TASK)
    file = Path(facts_of(response)["output_file"])
    # By the name that works for the code, wherever its folder is.
    assert f"is in .coderoom/{file.name}" in text_of(response)
    assert file.read_text() == WHOLE


async def test_ce08_without_a_model_it_is_the_same(terminal: MakeTerminal) -> None:
    response = await turn(terminal(max_output_chars=500), LINES)
    assert_head_and_tail(text_of(response), len(WHOLE))
    assert Path(facts_of(response)["output_file"]).read_text() == WHOLE


async def test_ce08_the_next_code_can_read_the_whole_output(coder: MakeCoder) -> None:
    find = python(
        "from pathlib import Path\n"
        "[file] = Path('.coderoom').iterdir()\n"
        "print('lines:', file.read_text().count('line'))"
    )
    agent = coder(Client(LINES, "Done.", find, "Counted."), max_output_chars=500)
    await turn(agent, TASK)
    assert "lines: 3000" in text_of(await turn(agent, "How many?"))


async def test_ce08_an_output_beyond_what_an_executor_keeps_has_its_true_size_and_its_file(coder: MakeCoder) -> None:
    response = await turn(coder(Client(python("print('x' * 3_000_000)"), "Done."), max_output_chars=500), TASK)
    assert "of 3,000,001 characters" in text_of(response)
    assert "more of its beginning and its end is in" in text_of(response)
    assert 1_000_000 < len(Path(facts_of(response)["output_file"]).read_text()) < 1_100_000


async def test_ce08_an_executor_without_a_folder_gets_a_file_too(coder: MakeCoder) -> None:
    executor = BareExecutor(CodeResult(0, WHOLE))
    response = await turn(coder(Client(GOOD, "Done."), code_executor=executor, max_output_chars=500), TASK)
    file = Path(facts_of(response)["output_file"])
    assert file.read_text() == WHOLE
    file.unlink()


async def test_ce08_what_fits_needs_no_file(coder: MakeCoder, tmp_path: Path) -> None:
    response = await turn(coder(Client(GOOD, "Done.")), TASK)
    assert "output_file" not in facts_of(response)
    assert list(tmp_path.iterdir()) == []


async def test_ce08_the_question_about_a_retry_does_not_repeat_the_output(coder: MakeCoder) -> None:
    client = Client(python("print('mar' + 'ker')\nexit(1)"), decide(False), "Sorry.")
    await turn(coder(client, max_retries_on_error=1), TASK)
    assert [sum(text.count("marker") for text in call.texts) for call in client.calls] == [0, 1, 1]


# --- CE10: blocks as models write them ---

FENCES = {
    "py": "```py\nprint(6 * 7)\n```",
    "python3": "```python3\nprint(6 * 7)\n```",
    "capitals": "```Python\nprint(6 * 7)\n```",
    "space before": "``` python\nprint(6 * 7)\n```",
    "space after": "```python \nprint(6 * 7)\n``` ",
    "attributes": '```python title="answer.py"\nprint(6 * 7)\n```',
    "braces": "```{.python .numberLines}\nprint(6 * 7)\n```",
    "CRLF": "Here:\r\n```python\r\nprint(6 * 7)\r\n```\r\n",
    "tildes": "~~~python\nprint(6 * 7)\n~~~",
    "longer fence": "````python\nprint(6 * 7)\n````",
    "indented": "1. Do this:\n\n   ```python\n   if True:\n       print(6 * 7)\n   ```\n",
    "fence in a string": '```python\ns = """\n```\nno end\n```\n"""\nprint(6 * 7)\n```',
    "closed on the last line": "```python\nprint(6 * 7)```",
    "sh": "```sh\necho $((6 * 7))\n```",
    "bash": "```bash\nx=(6 7)\necho $((${x[0]} * ${x[1]}))\n```",
    "shell": "```shell\necho $((6 * 7))\n```",
    "tag": "<execute>\nprint(6 * 7)\n</execute>",
}


@pytest.mark.parametrize("shape", FENCES)
async def test_ce10_code_of_others_is_found_in_all_shapes(shape: str, terminal: MakeTerminal) -> None:
    response = await turn(terminal(), FENCES[shape])
    assert text_of(response) == "42\n"
    assert facts_of(response)["outcome"] == "ok"


@pytest.mark.parametrize("shape", FENCES)
async def test_ce10_the_models_own_code_is_found_in_all_shapes(shape: str, coder: MakeCoder) -> None:
    agent = coder(Client(FENCES[shape], "Done."))
    response = await turn(agent, TASK)
    assert (await context_of(agent))[2:3] == ["42\n"]
    assert facts_of(response)["outcome"] == "ok"


SHOWN = {
    "an example in Markdown": "So you would write:\n````markdown\n```python\nopen('ran', 'w')\n```\n````\n",
    "marked no-run": "```python no-run\nopen('ran', 'w')\n```",
    "a transcript": "```pycon\n>>> open('ran', 'w')\n```",
    "inline": "Then ```python open('ran', 'w')``` does it.",
    "indented code": "Like this:\n\n    open('ran', 'w')\n",
    "in a comment": "<!--\n```python\nopen('ran', 'w')\n```\n-->",
}


@pytest.mark.parametrize("shape", SHOWN)
async def test_ce10_what_is_only_shown_is_not_run(shape: str, terminal: MakeTerminal, tmp_path: Path) -> None:
    response = await turn(terminal(), SHOWN[shape])
    assert not (tmp_path / "ran").exists()
    assert facts_of(response) == {"stop_reason": "no_code"}


@pytest.mark.parametrize("shape", SHOWN)
async def test_ce10_what_the_model_only_shows_is_its_answer(shape: str, coder: MakeCoder, tmp_path: Path) -> None:
    response = await turn(coder(Client(SHOWN[shape])), TASK)
    assert facts_of(response) == {"stop_reason": "no_code"}
    assert text_of(response) == SHOWN[shape]
    assert not (tmp_path / "ran").exists()


async def test_ce10_a_block_without_a_language_is_not_passed_over_in_silence(
    terminal: MakeTerminal, coder: MakeCoder
) -> None:
    block = "```\nprint(6 * 7)\n```"
    assert "it has no language" in text_of(await turn(terminal(), block))
    agent = coder(Client(block))
    await turn(agent, TASK)
    assert "it has no language" in (await context_of(agent))[-1]


async def test_ce10_code_keeps_its_text_to_the_letter(coder: MakeCoder) -> None:
    executor = BareExecutor(CodeResult(0, "ran"))
    code = "x = '''\n\ttab, trailing   \n\n```\n'''\n\n\nprint(x)"
    await turn(coder(Client(f"````python\n{code}\n````", "Done."), code_executor=executor), TASK)
    assert executor.received == [[CodeBlock(code=code, language="python")]]


# --- CE13: a no is a no ---


@pytest.mark.parametrize("reflect", [True, False])
async def test_ce13_a_no_ends_the_turn_and_is_asked_for_once(reflect: bool, coder: MakeCoder, tmp_path: Path) -> None:
    approver, client = Approver(False, ""), Client(python("open('ran', 'w')"), decide(True), GOOD, "Done.")
    agent = coder(client, approval_func=approver, max_retries_on_error=2, reflect=reflect)
    response = await turn(agent, TASK)
    assert (len(approver.asked), len(client.calls)) == (1, 1)
    assert facts_of(response)["outcome"] == "rejected"
    assert facts_of(response)["stop_reason"] == "rejected"
    assert "no reason was given" in text_of(response)
    assert not (tmp_path / "ran").exists()


async def test_ce13_the_model_knows_of_the_no_and_its_reason_in_the_next_turn(coder: MakeCoder) -> None:
    client = Client(GOOD, "I see.")
    agent = coder(client, approval_func=Approver(False))
    await turn(agent, TASK)
    await turn(agent, "And now?")
    assert any("not approved. Reason: it deletes files" in text for text in client.calls[-1].texts)


async def test_ce13_a_no_without_a_model_is_told_with_its_reason(terminal: MakeTerminal) -> None:
    response = await turn(terminal(approval_func=Approver(False)), GOOD)
    assert text_of(response) == "Code execution was not approved. Reason: it deletes files"
    assert (facts_of(response)["outcome"], facts_of(response)["stop_reason"]) == ("rejected", "rejected")


async def test_ce13_each_attempt_is_asked_for(coder: MakeCoder) -> None:
    approver = Approver(True)
    client = Client(BAD, decide(True), GOOD, "Done.")
    await turn(coder(client, approval_func=approver, max_retries_on_error=1), TASK)
    assert [request.code for request in approver.asked] == [BAD, GOOD]


# --- CE14: every kind of approval function ---


def yes() -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="fine")


async def approve_async(request: ApprovalRequest) -> ApprovalResponse:
    return yes()


def approve_sync(request: ApprovalRequest) -> ApprovalResponse:
    return yes()


def approve_by_awaitable(request: ApprovalRequest) -> Awaitable[ApprovalResponse]:
    return approve_async(request)


class SyncApprover:
    def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        return yes()


@pytest.mark.parametrize(
    "approval",
    [
        approve_async,
        approve_sync,
        approve_by_awaitable,
        functools.partial(approve_async),
        Approver(True),
        SyncApprover(),
    ],
    ids=["async", "sync", "returns an awaitable", "partial", "async object", "sync object"],
)
async def test_ce14_every_kind_of_callable_can_approve(approval: Any, terminal: MakeTerminal) -> None:
    assert text_of(await turn(terminal(approval_func=approval), GOOD)) == "42\n"


async def test_ce14_a_function_that_waits_does_not_hold_up_the_event_loop(terminal: MakeTerminal) -> None:
    asked, answered = threading.Event(), threading.Event()

    def approve(request: ApprovalRequest) -> ApprovalResponse:
        asked.set()
        return ApprovalResponse(approved=answered.wait(20), reason="whether the loop went on meanwhile")

    async def answer() -> None:
        while not asked.is_set():
            await asyncio.sleep(0.01)
        answered.set()

    response, _ = await asyncio.gather(turn(terminal(approval_func=approve), GOOD), answer())
    assert text_of(response) == "42\n"


async def test_ce14_an_approval_that_fails_is_a_no(coder: MakeCoder, tmp_path: Path) -> None:
    async def approve(request: ApprovalRequest) -> ApprovalResponse:
        raise OSError("nobody is there")

    response = await turn(coder(Client(python("open('ran', 'w')")), approval_func=approve), TASK)
    assert facts_of(response)["outcome"] == "rejected"
    assert "nobody is there" in text_of(response)
    assert not (tmp_path / "ran").exists()


# --- CE15: whoever approves knows what led to the code ---


async def test_ce15_without_a_model_the_approval_gets_the_messages(terminal: MakeTerminal) -> None:
    approver = Approver(True)
    await turn(terminal(approval_func=approver), "Please run this.", GOOD)
    [request] = approver.asked
    assert texts(request.context) == ["Please run this.", GOOD]
    assert request.code == GOOD


async def test_ce15_with_a_model_the_approval_gets_the_conversation(coder: MakeCoder) -> None:
    approver = Approver(True)
    await turn(coder(Client(GOOD, "Done."), approval_func=approver), TASK)
    assert texts(approver.asked[0].context) == [TASK, GOOD]


async def test_ce15_code_that_does_not_run_is_not_shown_for_approval(terminal: MakeTerminal) -> None:
    approver = Approver(True)
    await turn(terminal(approval_func=approver), f"{GOOD}\n\n{COBOL}\n\n```sh\necho hi\n```")
    assert approver.asked[0].code == f"{GOOD}\n\n```sh\necho hi\n```"


# --- CE16: what ran without a model is a fact, not only a text ---


@pytest.mark.parametrize(
    ("code", "outcome", "exit_code"), [("print(6 * 7)", "ok", 0), ("print('no')\nexit(3)", "error", 3)]
)
async def test_ce16_without_a_model_there_are_event_and_facts(
    code: str, outcome: str, exit_code: int, terminal: MakeTerminal
) -> None:
    response = await turn(terminal(), python(code))
    [event] = response.inner_messages or []
    assert isinstance(event, CodeExecutionEvent)
    assert event.result.exit_code == exit_code
    facts = facts_of(response)
    assert (facts["outcome"], facts["exit_code"], facts["attempts"]) == (outcome, str(exit_code), "1")
    assert event.metadata["coderoom.outcome"] == outcome


async def test_ce16_run_returns_the_event_too(terminal: MakeTerminal) -> None:
    result = await terminal().run(task=GOOD)
    assert [type(message) for message in result.messages] == [TextMessage, CodeExecutionEvent, TextMessage]


# --- CE17: code is found in every type of message ---


class Note(BaseModel):
    title: str
    text: str


def picture() -> Image:
    return Image(Pictures.new("RGB", (2, 2)))


MESSAGES: dict[str, BaseChatMessage] = {
    "text": TextMessage(content=GOOD, source="user"),
    "stop": StopMessage(content=GOOD, source="user"),
    "handoff": HandoffMessage(content=GOOD, source="user", target="terminal"),
    "summary of tool calls": ToolCallSummaryMessage(content=GOOD, source="user", tool_calls=[], results=[]),
    "pictures": MultiModalMessage(content=[f"Look:\n{GOOD}\n", picture()], source="user"),
    "code after a picture": MultiModalMessage(content=[picture(), GOOD], source="user"),
    "code in a part of its own": MultiModalMessage(content=["Run this:", GOOD, "Thanks!"], source="user"),
    "structured": StructuredMessage[Note](
        content=Note(title="Run", text=GOOD), source="user", format_string="# {title}\n\n{text}"
    ),
}


@pytest.mark.parametrize("kind", MESSAGES)
async def test_ce17_code_is_found_in_every_type_of_message(kind: str, terminal: MakeTerminal) -> None:
    assert text_of(await turn(terminal(), MESSAGES[kind])) == "42\n"


# --- CE18: the executor's result is its own ---


@pytest.mark.parametrize("code", ["print(6 * 7)", "exit(3)", "pass", "print('no')\nexit(3)"])
async def test_ce18_the_executors_result_stays_as_it_was(code: str, coder: MakeCoder, tmp_path: Path) -> None:
    executor = KeepingExecutor(tmp_path)
    await turn(coder(Client(python(code), "Done."), code_executor=executor), TASK)
    [(result, original)] = executor.kept
    assert (result.exit_code, result.output) == original


async def test_ce18_the_event_holds_the_raw_output(coder: MakeCoder) -> None:
    response = await turn(coder(Client(python("print('no')\nexit(3)"), "Sorry.")), TASK)
    [event] = [event for event in response.inner_messages or [] if isinstance(event, CodeExecutionEvent)]
    assert event.result == CodeResult(exit_code=3, output="no\n")


@pytest.mark.parametrize("code", ["exit(3)", "print(' ')\nexit(3)"])
async def test_ce18_a_failure_without_output_can_be_told_from_a_success(
    code: str, coder: MakeCoder, terminal: MakeTerminal
) -> None:
    client = Client(python(code), "Sorry.")
    response = await turn(coder(client), TASK)
    told = [text for text in client.calls[-1].texts if "exited with an error (POSIX exit code: 3)" in text]
    assert len(told) == 1
    assert "error, exit code 3" in text_of(response)
    assert "exited with an error (POSIX exit code: 3)" in text_of(await turn(terminal(), python(code)))


async def test_ce18_a_success_without_output_says_so(terminal: MakeTerminal) -> None:
    response = await turn(terminal(), python("pass"))
    assert "produced no output" in text_of(response)
    assert facts_of(response)["outcome"] == "ok"

"""A person whom a function reaches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from rich.cells import cell_len

from coderoom.approval import (
    ApprovalRequest,
    ApprovalResponse,
    ChainApproval,
    Edited,
    FinalNo,
    InputApproval,
    Rule,
    RuleApproval,
    approve_changes,
)
from coderoom.blocks import extract_code_blocks, fence
from coderoom.sandbox import Sandbox

REQUEST = ApprovalRequest(code="```python\nprint(1)\n```", context=[])


async def ask(*answers: str, code: str = REQUEST.code) -> tuple[ApprovalResponse, list[str]]:
    questions: list[str] = []
    left = list(answers)

    def answer(prompt: str) -> str:
        questions.append(prompt)
        return left.pop(0)

    return await InputApproval(answer).decide(ApprovalRequest(code=code, context=[])), questions


@pytest.mark.parametrize(
    ("answer", "approved", "reason"),
    [
        ("y", True, "A person said yes."),
        (" Yes! ", True, "A person said yes."),
        ("yes because the tests need it", True, "the tests need it"),
        ("No.", False, "A person said no."),
        ("", False, "A person said no."),
        ("  \n", False, "A person said no."),
        ("n because it deletes files", False, "it deletes files"),
    ],
)
async def test_an_answer_is_understood(answer: str, approved: bool, reason: str) -> None:
    response, questions = await ask(answer)
    assert (response.approved, response.reason) == (approved, reason)
    assert isinstance(response, FinalNo) == (reason == "A person said no.")
    assert len(questions) == 1


@pytest.mark.parametrize(
    "unclear", ["yes, but only the first line", "yes if", "ok", "yesterday", "\u200byes", "\u0443"]
)
async def test_an_unclear_answer_is_asked_again(unclear: str) -> None:
    response, questions = await ask(unclear, "no")
    assert (response.approved, len(questions)) == (False, 2)
    assert "neither a yes nor a no" in questions[1]
    assert questions[1].count("Run this code?") == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("edit: print(2)", "print(2)"),
        ("Edit:\nif x:\n    y\n", "if x:\n    y"),
        ("edit:\n\n```python\nprint(2)\n```\n", "print(2)"),
        ("e: ```py no-run\nprint(2)\n```", "print(2)"),
    ],
)
async def test_an_answer_has_other_code(answer: str, code: str) -> None:
    response, [_, again] = await ask(answer, "yes")
    assert isinstance(response, Edited)
    [block] = extract_code_blocks(response.code)
    assert [shown.code for shown in extract_code_blocks(again)] == [code]
    assert (block.code, block.language, block.no_run) == (code, "python", False)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("edit:", "no code"),
        ("edit", "neither a yes nor a no"),
        ("e", "neither a yes nor a no"),
        ("edit: ```sh\nid\n```", "labelled 'sh'"),
        ("edit: like this\n```python\nprint(2)\n```", "outside of the blocks"),
        ("edit: x = 'a\n\u21b3 b'", "a long line"),
    ],
)
async def test_other_code_that_cannot_run_is_asked_for_again(answer: str, words: str) -> None:
    response, questions = await ask(answer, "no")
    assert isinstance(response, FinalNo)
    assert words in questions[1]


async def test_other_code_needs_a_yes_too() -> None:
    response, _ = await ask("edit: print(2)", "no because I am tired of it")
    assert response == ApprovalResponse(approved=False, reason="I am tired of it")


async def test_of_several_blocks_each_needs_a_fence() -> None:
    code = "\n\n".join(fence(text, "python") for text in ("a", "b"))
    response, [_, again, _] = await ask("edit: print(2)", f"edit:\n{fence('c', 'python')}", "y", code=code)
    assert "each one needs its fence" in again
    assert response == Edited(code=fence("c", "python"))


async def test_changes_of_files_are_not_edited(tmp_path: Path) -> None:
    questions: list[str] = []

    def answer(prompt: str) -> str:
        questions.append(prompt)
        return "edit: x" if len(questions) == 1 else "n because of x"

    async with Sandbox(workspace=tmp_path, workspace_mode="overlay") as sandbox, sandbox.session() as session:
        await session.run("open('a', 'w')")
        changes, patch = await session.changes(), await session.diff()
        response = await approve_changes(InputApproval(answer), changes, patch)
        edits = await approve_changes(lambda request: Edited(code=request.code), changes, patch)
    assert (response.approved, response.reason, len(questions)) == (False, "of x", 2)
    assert "edit" not in questions[0].partition("```")[0]
    assert (edits.approved, type(edits)) == (False, FinalNo)


async def test_what_cannot_be_taken_apart_is_shown_whole() -> None:
    code = "before\n\n```python\nprint(1)\n```\n\nafter"
    _, [question] = await ask("no", code=code)
    [block] = extract_code_blocks(question)
    assert (block.code, block.tag, block.no_run) == (code, "text", True)


@pytest.mark.parametrize("code", ["", "\n\n", "   indented", "```", "~~~\n```", "a\r\nb", "x = '''\n```python\n'''"])
async def test_every_code_is_shown_in_one_piece_that_is_not_run(code: str) -> None:
    _, [question] = await ask("no", code=fence(code, "python"))
    [block] = extract_code_blocks(question)
    assert block.no_run
    assert code.replace("\r\n", "\n").strip("\n") in block.code


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("print('ok')" + " " * 200 + "; evil()", None),
        ("\t" * 40 + "evil()", None),
        ("x = '" + "\u6f22" * 60 + "'; evil()", None),
        ("# " + "a" * 70 + "\n\u21b3 ; evil", "# " + "a" * 60 + "\n\u21b3 " + "a" * 10 + "\n<U+21B3> ; evil"),
        ("x" * 64, "x" * 64),
    ],
)
async def test_nothing_is_pushed_out_of_sight(code: str, shown: str | None) -> None:
    _, [question] = await ask("no", code=fence(code, "python"))
    [block] = extract_code_blocks(question)
    assert max(cell_len(line) for line in block.code.split("\n")) <= 64
    assert ("goes on" in question) == (code != shown)
    if shown is None:
        assert block.code.replace("\n\u21b3 ", "") == code.expandtabs(8)
    else:
        assert block.code == shown


class Page:
    """Studio's side of a question: answers are put into a queue, whether there is a question or not."""

    def __init__(self) -> None:
        self._input_responses: dict[int, asyncio.Queue[str]] = {1: asyncio.Queue(), 2: asyncio.Queue()}
        self.asked = asyncio.Event()

    def answer(self, text: str, run_id: int = 1) -> None:
        self._input_responses[run_id].put_nowait(text)

    def input_func(self, run_id: int) -> Any:
        async def ask(prompt: str = "", cancellation_token: CancellationToken | None = None) -> str:
            self.asked.set()
            return await self._input_responses[run_id].get()

        return ask


async def test_what_was_answered_before_the_question_is_no_answer() -> None:
    page = Page()
    page.answer("yes")
    page.answer("yes")
    page.answer("yes", run_id=2)
    asking = asyncio.create_task(InputApproval(page.input_func(1)).decide(REQUEST))
    async with asyncio.timeout(10):
        await page.asked.wait()
        await asyncio.sleep(0.05)
        assert not asking.done()
        page.answer("no")
        assert (await asking).approved is False
        assert page._input_responses[2].qsize() == 1


async def test_a_late_answer_is_none_to_the_next_question() -> None:
    page = Page()
    first = await InputApproval(page.input_func(1), timeout=0.05).decide(REQUEST)
    assert "within 0.05 seconds" in first.reason
    page.answer("yes")
    assert (await InputApproval(page.input_func(1), timeout=0.05).decide(REQUEST)).approved is False


async def test_it_stands_in_a_chain() -> None:
    rules = RuleApproval([Rule(pattern="rmtree", action="deny")])
    chain = ChainApproval([rules, InputApproval(lambda question: "yes")])
    assert (await chain(REQUEST)).approved is True
    assert (await chain(ApprovalRequest(code=fence("rmtree()", "python"), context=[]))).approved is False


async def test_who_asks_the_same_person_waits_for_the_answer_to_the_question_before() -> None:
    page: list[str] = []
    answers: asyncio.Queue[str] = asyncio.Queue()

    class Person:
        async def answer(self, prompt: str, token: CancellationToken | None) -> str:
            page.append(prompt)
            return await answers.get()

    person = Person()
    asked = [
        asyncio.create_task(InputApproval(person.answer).decide(ApprovalRequest(code=code, context=[])))
        for code in ("print('first')", "print('second')")
    ]
    for number, answer in enumerate(["no", "yes"]):
        while len(page) <= number:
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert len(page) == number + 1
        answers.put_nowait(answer)
    assert "first" in page[0]
    assert "second" in page[1]
    assert [(await each).approved for each in asked] == [False, True]


async def test_who_waits_for_another_question_can_be_cancelled() -> None:
    async def never(prompt: str, token: CancellationToken | None) -> str:
        await asyncio.sleep(60)
        return "yes"

    first, second = (asyncio.create_task(InputApproval(never).decide(REQUEST)) for _ in range(2))
    await asyncio.sleep(0.05)
    for each in (second, first):
        each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await each


async def test_a_function_with_names_that_are_not_bound_yet_is_asked() -> None:
    def answer(prompt: str) -> str:
        if not prompt:
            later()
        return "yes"

    response = await InputApproval(answer).decide(REQUEST)

    def later() -> None: ...

    assert response.approved


def test_people_are_asked_one_after_the_other_in_every_event_loop() -> None:
    asked = 0

    async def answer(prompt: str, token: CancellationToken | None) -> str:
        nonlocal asked
        asked += 1
        mine = asked
        await asyncio.sleep(0.01)
        assert asked == mine
        return "yes"

    async def ask_twice() -> list[ApprovalResponse]:
        return await asyncio.gather(*(InputApproval(answer).decide(REQUEST) for _ in range(3)))

    for _ in range(2):
        assert [response.approved for response in asyncio.run(ask_twice())] == [True] * 3

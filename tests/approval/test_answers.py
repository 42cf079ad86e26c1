"""Words of a person about code, and code that they have edited."""

from __future__ import annotations

import pytest
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse

from coderoom.approval.answers import (
    LONGEST_REASON,
    Edited,
    FinalNo,
    as_response,
    edited_answer,
    edited_blocks,
    text_to_edit,
    understand,
)

ASKED = ApprovalRequest(code="```python\nprint(1)\n```", context=[])
TWO = ApprovalRequest(code="```python\n1\n```\n\n```sh\nls\n```", context=[])


@pytest.mark.parametrize(
    ("answer", "approved", "reason", "final"),
    [
        ("y", True, "Ann said yes.", False),
        ("YES, because it is safe", True, "it is safe", False),
        ("", False, "Ann said no.", True),
        ("no.", False, "Ann said no.", True),
        ("n: use a copy", False, "use a copy", False),
        ("No because it deletes", False, "it deletes", False),
    ],
)
def test_a_yes_or_no_with_a_reason(answer: str, approved: bool, reason: str, final: bool) -> None:
    found = understand(answer, "Ann", ASKED)
    assert found is not None
    assert (found.approved, found.reason, isinstance(found, FinalNo)) == (approved, reason, final)


@pytest.mark.parametrize("answer", ["yes but not the last line", "perhaps", "always", "nope", "yesterday"])
def test_anything_else_is_unclear(answer: str) -> None:
    assert understand(answer, "Ann", ASKED) is None


def test_answers_of_functions() -> None:
    assert as_response(True).approved
    assert isinstance(as_response(False), FinalNo)
    assert isinstance(as_response(ApprovalResponse(approved=False, reason=" ")), FinalNo)
    assert not isinstance(as_response(ApprovalResponse(approved=False, reason="use a copy")), FinalNo)
    assert isinstance(as_response(Edited(code="x", reason="")), Edited)
    assert as_response(ApprovalResponse(approved=True, reason="")).approved
    assert as_response("yes") == FinalNo(
        reason="The approval answered with str where an ApprovalResponse was expected."
    )
    longest = as_response(ApprovalResponse(approved=True, reason="x" * (LONGEST_REASON + 1))).reason
    assert len(longest) <= LONGEST_REASON


def test_edited_code_is_written_anew() -> None:
    assert edited_answer("print(2)", ASKED).code == "```python\nprint(2)\n```"
    assert edited_answer("```python no-run\nprint(2)\n```", ASKED).code == "```python\nprint(2)\n```"
    assert [block.code for block in edited_blocks(TWO.code.replace("1", ""), TWO.code)] == ["ls"]
    assert text_to_edit(ASKED.code) == "print(1)"
    assert text_to_edit(TWO.code) == TWO.code


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("```sh\nls\n```", "The block at line 1 is labelled 'sh', and python was asked about"),
        ("```python\n1", "The block at line 1 has no clear end"),
        ("Look:\n```python\n1\n```", "There is text outside of the blocks"),
        ("```python\n \n```", "There is no code in it"),
    ],
)
def test_edited_code_that_cannot_run(code: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        edited_answer(code, ASKED)


def test_code_without_a_fence_needs_one_block() -> None:
    with pytest.raises(ValueError, match="There are 2 blocks"):
        edited_answer("print(2)", TWO)

from __future__ import annotations

from typing import Any

import pytest

from coderoom.approval import (
    AlwaysApprove,
    Approval,
    ApprovalRequest,
    ApprovalResponse,
    ChainApproval,
    FinalNo,
    NeverApprove,
    ask_approval,
)

REQUEST = ApprovalRequest(code="print(1)", context=[])


class Answering(Approval):
    """Gives one answer, and counts."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0
        self.closed = 0

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse | None:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]

    async def close(self) -> None:
        self.closed += 1
        if isinstance(self.answer, Exception):
            raise self.answer


def yes(reason: str = "good") -> Answering:
    return Answering(ApprovalResponse(approved=True, reason=reason))


def no(reason: str = "bad") -> Answering:
    return Answering(ApprovalResponse(approved=False, reason=reason))


def undecided() -> Answering:
    return Answering(None)


async def test_first_lets_the_first_with_an_opinion_decide() -> None:
    links = [undecided(), no("mine"), yes()]
    answer = await ChainApproval(links).decide(REQUEST)
    assert answer == ApprovalResponse(approved=False, reason="mine")
    assert [link.asked for link in links] == [1, 1, 0]
    assert (await ChainApproval([undecided(), yes(), no()]).decide(REQUEST)).approved


@pytest.mark.parametrize("mode", ["first", "all"])
async def test_nobody_with_an_opinion_is_a_no(mode: Any) -> None:
    for links in ([], [undecided(), undecided()]):
        answer = await ChainApproval(links, mode=mode).decide(REQUEST)
        assert answer.approved is False
        assert "opinion" in answer.reason


async def test_all_needs_every_opinion_to_be_a_yes() -> None:
    answer = await ChainApproval([yes("tested."), undecided(), yes("reviewed.")], mode="all").decide(REQUEST)
    assert answer == ApprovalResponse(approved=True, reason="tested. reviewed.")


async def test_all_ends_at_the_first_no() -> None:
    links = [yes(), no("stop"), yes()]
    answer = await ChainApproval(links, mode="all").decide(REQUEST)
    assert answer == ApprovalResponse(approved=False, reason="stop")
    assert [link.asked for link in links] == [1, 1, 0]


async def test_a_link_that_fails_is_not_passed_over() -> None:
    links = [Answering(RuntimeError("lost")), yes()]
    answer = await ask_approval(ChainApproval(links), REQUEST)
    assert answer.approved is False
    assert "RuntimeError: lost" in answer.reason
    assert links[1].asked == 0


@pytest.mark.parametrize("mode", ["first", "all"])
async def test_a_link_that_answers_something_else_says_no(mode: Any) -> None:
    answer = await ChainApproval([Answering("yes"), yes()], mode=mode).decide(REQUEST)
    assert answer.approved is False
    assert "str" in answer.reason


async def test_close_closes_all_even_if_one_fails() -> None:
    links = [yes(), Answering(RuntimeError("stuck")), yes()]
    with pytest.raises(RuntimeError, match="stuck"):
        await ChainApproval(links).close()
    assert [link.closed for link in links] == [1, 1, 1]


async def test_chains_nest() -> None:
    inner = ChainApproval([AlwaysApprove(), NeverApprove("inner")], mode="all")
    answer = await ChainApproval([undecided(), inner, AlwaysApprove()])(REQUEST)
    assert answer == FinalNo(reason="inner")


@pytest.mark.parametrize("mode", ["first", "all"])
async def test_a_chain_without_an_opinion_leaves_it_to_the_outer_one(mode: Any) -> None:
    last = yes()
    inner = ChainApproval([undecided(), ChainApproval([])])
    assert (await ChainApproval([inner, last], mode=mode).decide(REQUEST)).approved
    assert last.asked == 1
    assert not (await ChainApproval([inner, undecided()], mode=mode).decide(REQUEST)).approved


async def test_a_chain_of_somebody_elses_is_asked_as_it_wants() -> None:
    class Strict(ChainApproval):
        async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
            return ApprovalResponse(approved=False, reason="strict")

    answer = await ChainApproval([Strict([yes()]), yes()]).decide(REQUEST)
    assert answer == ApprovalResponse(approved=False, reason="strict")


def test_wrong_arguments_are_named() -> None:
    not_one: Any = [AlwaysApprove(), lambda request: True]
    with pytest.raises(TypeError, match=r"approvals\[1\].*not an Approval"):
        ChainApproval(not_one)
    wrong: Any = "any"
    with pytest.raises(ValueError, match="'any'"):
        ChainApproval([], mode=wrong)

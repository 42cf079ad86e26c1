"""The answers of approvals beyond AutoGen's type: a no that ends the turn, and code that a person has edited.

Also what a person is asked, and how their words are read: at the terminal, and through a function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse

from coderoom._util.text import bound_output
from coderoom.approval.calls import Always, CallRequest
from coderoom.blocks import Block, extract_code_blocks, fence

LONGEST_REASON: Final = 10_000
"""The characters of a reason that are kept: its beginning and its end."""
DEFAULT_PROMPT: Final = "Run this code?"
TRIES: Final = 3
"""How often a person is asked before unclear answers count as a no."""
UNCLEAR: Final = f"The person's answer was not understood {TRIES} times."

# A yes followed by anything but "because" may be a yes with a condition, which nothing would enforce.
_ANSWER = re.compile(
    r"(?:(?P<no>no?)\b[\s,;:.!-]*(?:because\b)?|(?P<yes>y(?:es)?)[\s,;:.!]*(?:because\b|$))(?P<reason>.*)",
    re.IGNORECASE | re.DOTALL,
)


_deciders: Final[ContextVar[list[str] | None]] = ContextVar("coderoom_deciders", default=None)


@contextmanager
def noting_deciders() -> Iterator[list[str]]:
    """Note who decides about the question of this context."""
    noted: list[str] = []
    token = _deciders.set(noted)
    try:
        yield noted
    finally:
        _deciders.reset(token)


def decided_by(who: str) -> None:
    """Say who has decided about the question of this context; in a chain, it may be one of several."""
    if (noted := _deciders.get()) is not None and who not in noted:
        noted.append(who)


class FinalNo(ApprovalResponse):
    """A no after which the agent does not try again: nobody gave a reason that would help its model.

    Any other no with a reason goes to the model, which may write other code.
    """

    approved: Literal[False] = False
    final: Literal[True] = True


class Edited(ApprovalResponse):
    """A yes to other code, which a person has made of the code in the request.

    Its `approved` is false, so that a program that does not know this answer runs nothing.

    Attributes:
        code: What is to run instead, in the form of `ApprovalRequest.code`: Markdown with one fence for each block.
        always: Of a call, whether it is also a yes to all later ones of the function, as `Always`.
    """

    approved: Literal[False] = False
    reason: str = "A person edited the code, and only what they made of it may run."
    code: str
    always: bool = False


class ChangesRequest(ApprovalRequest):
    """A question about changes of files, which can be written as they are, or not at all."""


def no(reason: str) -> FinalNo:
    """A no that ends the turn, with a reason."""
    return FinalNo(reason=reason)


def as_response(answer: object) -> ApprovalResponse:
    """An answer as AutoGen's type, with a reason that is not too long.

    An answer that is neither that nor a bool is a no. A no without a reason ends the turn.
    """
    if isinstance(answer, ApprovalResponse):
        if not (answer.approved or answer.reason.strip() or isinstance(answer, Edited)):
            return no("no reason was given")
        return answer.model_copy(update={"reason": bound_output(answer.reason, LONGEST_REASON)})
    if isinstance(answer, bool):
        return ApprovalResponse(approved=True, reason="Approved.") if answer else no("Not approved.")
    return no(f"The approval answered with {type(answer).__name__} where an ApprovalResponse was expected.")


def edited_blocks(code: str, before: str) -> list[Block]:
    """The blocks of edited code that have something to run.

    Args:
        code: The edited code, as Markdown.
        before: The code in the request.

    Raises:
        ValueError: It cannot run; the message says why, in a sentence.
    """
    blocks = extract_code_blocks(code)
    known = {block.language for block in extract_code_blocks(before)}
    for block in blocks:
        if block.unclear or not block.closed:
            raise ValueError(f"The block at line {block.line} has no clear end.")
        if block.language not in known:
            runs = " or ".join(sorted(known))
            raise ValueError(f"The block at line {block.line} is labelled {block.tag!r}, and {runs} was asked about.")
    if outside_of(code, blocks):
        raise ValueError("There is text outside of the blocks.")
    blocks = [block for block in blocks if block.code.strip()]
    if not blocks:
        raise ValueError("There is no code in it.")
    return blocks


def edited_answer(code: str, request: ApprovalRequest) -> Edited:
    """The answer with edited code: blocks as Markdown, or without a fence the code of the only block.

    Raises:
        ValueError: It cannot run; the message says why, in a sentence.
    """
    if isinstance(request, CallRequest):
        return Edited(code=request.edited(code).code)
    asked = extract_code_blocks(request.code)
    if not extract_code_blocks(code):
        if len(asked) != 1:
            raise ValueError(f"There are {len(asked)} blocks: each one needs its fence.")
        code = fence(code, asked[0].tag)
    # Written anew, since a block that is copied from a question is marked `no-run`.
    return Edited(code="\n\n".join(fence(block.code, block.tag) for block in edited_blocks(code, request.code)))


def text_to_edit(code: str) -> str:
    """The code of a request as a person edits it: the only block without its fence, unless it has fences itself."""
    blocks = extract_code_blocks(code)
    is_alone = len(blocks) == 1 and not extract_code_blocks(blocks[0].code)
    return blocks[0].code if is_alone else code


def outside_of(text: str, blocks: Sequence[Block]) -> str:
    """The lines of a text outside of its blocks."""
    lines = re.split(r"\r\n?|\n", text)
    accounted: set[int] = set()
    for block in blocks:
        code = block.code.split("\n") if block.code else []
        there = lines[block.line : block.line + len(code)]
        has_fence = lines[block.line - 1].lstrip().startswith(("```", "~~~"))
        if has_fence and [line.strip() for line in there] == [line.strip() for line in code]:
            accounted.update(range(block.line - 1, block.line + len(code)))
    rest = (line for number, line in enumerate(lines) if number not in accounted)
    return "\n".join(line for line in rest if line.strip(" \t`~"))


def understand(answer: str, who: str, request: ApprovalRequest) -> ApprovalResponse | None:
    """Read an answer of a person; `None` if it is neither a yes nor a no. An empty answer is a no.

    A no with a reason goes to the model, and one without ends the turn. All calls of a function can be allowed at once.
    """
    if isinstance(request, CallRequest) and answer.strip().lower() in ("a", "always"):
        return Always(reason=f"{who} said always.")
    if not answer.strip():
        return no(f"{who} said no.")
    match = _ANSWER.fullmatch(answer.strip())
    if match is None:
        return None
    approved, reason = match["yes"] is not None, match["reason"].strip()
    if not (approved or reason):
        return no(f"{who} said no.")
    return ApprovalResponse(approved=approved, reason=reason or f"{who} said yes.")


def about_edited(made: Edited | None, response: ApprovalResponse) -> ApprovalResponse:
    """What a person's answer means, if it is about what they have made of the code."""
    if made is None or not response.approved:
        return response
    return made.model_copy(update={"always": isinstance(response, Always)})


def prompt_for(prompt: str, request: ApprovalRequest) -> str:
    """The question about a request; the default one speaks of a call where that is what is asked about."""
    is_default = prompt == DEFAULT_PROMPT and isinstance(request, CallRequest)
    return "Make this call?" if is_default else prompt


def said_always(request: CallRequest) -> ApprovalResponse:
    """The answer for a function to all calls of which a person has said yes."""
    decided_by("a person, who has said always")
    reason = f"A person has said yes to all calls of {request.function}() in this session."
    return ApprovalResponse(approved=True, reason=reason)

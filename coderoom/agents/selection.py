"""Choosing the code of a message that runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from autogen_agentchat.messages import BaseChatMessage, MultiModalMessage
from autogen_core.code_executor import CodeBlock

from coderoom._util.text import counted
from coderoom.blocks import Block, extract_code_blocks, normalize_language, split_thoughts, without_thoughts

CodeFormat = Literal["fence", "execute"]


@dataclass(frozen=True)
class Selection:
    """The blocks of a message that will run, and why the others will not.

    Attributes:
        blocks: The blocks to run, in order.
        notes: Why other blocks are not run, one sentence each, for the model.
        is_code: Whether the message contains code to run at all; a table in `json` alone is not code.
        cut: Whether a block has no end, so that code is missing.
        left_out: The code that is not run.
    """

    blocks: tuple[CodeBlock, ...] = ()
    notes: tuple[str, ...] = ()
    is_code: bool = False
    cut: bool = False
    left_out: tuple[str, ...] = ()


def texts_of(message: BaseChatMessage) -> list[str]:
    """The texts of a message that may contain code, without a model's thoughts.

    The texts around a picture are separate. In a person's message, a tag of thoughts is text.
    """
    if isinstance(message, MultiModalMessage):
        texts = [part for part in message.content if isinstance(part, str)]
    else:
        texts = [message.to_model_text()]
    return texts if message.source == "user" else [without_thoughts(text) for text in texts]


def select_from_reply(reply: str, find_code: Callable[[str], Selection]) -> Selection:
    """Select the blocks of a model's reply; code in its thoughts is a draft and no code to run."""
    spoken, lone = split_thoughts(reply)
    selection = find_code(spoken)
    is_closed = lone.startswith("</")
    # Many models write the closing tag only. This needs no words as long as code follows.
    if not lone or (is_closed and selection.is_code) or not (draft := find_code(reply)).is_code:
        return selection
    left_out = tuple(block.code for block in draft.blocks if block not in selection.blocks) + draft.left_out
    notes = (*selection.notes, _CLOSED_THOUGHT.format(lone) if is_closed else _OPEN_THOUGHT)
    return replace(selection, notes=notes, is_code=True, left_out=(*selection.left_out, *left_out))


def select_blocks(texts: Sequence[str], languages: Sequence[str], code_format: CodeFormat | None = None) -> Selection:
    """Select the blocks in these languages, in fences or in `<execute>` tags, or without a `code_format` in both."""
    known = {normalize_language(language) for language in languages}
    run: list[CodeBlock] = []
    notes: list[str] = []
    left_out: list[str] = []
    is_code = cut = False
    blocks = [block for text in texts for block in extract_code_blocks(text)]
    if len(blocks) > _MOST_BLOCKS:  # Which no model writes, and each one is shown, sent and kept.
        why = f"the text has {len(blocks):,} blocks, and {_MOST_BLOCKS:,} are read"
        blocks = [Block("code", "", tag="code", unclear=why)]
    if any(block.unclear and not block.no_run for block in blocks):
        return _unclear([block for block in blocks if not block.no_run], known)
    for block in blocks:
        is_for_running = block.language in known or (block.language != "" and not block.is_data)
        if block.no_run:
            continue
        if code_format is not None and (block.tag == "execute") != (code_format == "execute"):
            if code_format == "fence":  # Tags are never for show; blocks are, beside tags.
                is_code = True
                left_out.append(block.code)
                notes.append(_TAGGED)
        elif not block.closed and (is_for_running or block.language == ""):
            is_code = is_code or is_for_running
            cut = cut or is_for_running
            left_out.append(block.code)
            label = f"{block.language!r} " if block.language else ""
            closing = "</execute>" if block.tag == "execute" else "fence"
            notes.append(
                f"The {label}block at line {block.line} was not run: it is cut off, its closing {closing} is missing. "
                "Write it again as a whole, shorter if need be."
            )
        elif block.language in known:
            is_code = True
            run.append(CodeBlock(code=block.code, language=block.run_language))
        else:
            is_code = is_code or is_for_running
            left_out.append(block.code)
            what = f"it is labelled {block.tag!r}" if block.language else "it has no language"
            runs = ", ".join(languages)
            note = f"The block at line {block.line} was not run: {what}, and what runs here is {runs}."
            notes.append(f"{note} {_UNAPPLIED}" if block.language == "diff" else note)
    return Selection(tuple(run), _few(notes), is_code, cut, tuple(left_out))


def _unclear(blocks: Sequence[Block], known: Collection[str]) -> Selection:
    """Nothing runs if it cannot be told where a block ends: what looks like the next one may be a part of it."""
    notes = [
        f"Nothing was run, since the code cannot be told for sure: in the {block.tag or 'unlabelled'} block at line "
        f"{block.line}, {block.unclear}. Write all of the code again."
        for block in blocks
        if block.unclear
    ]
    is_code = any(block.language in known or (block.language and not block.is_data) for block in blocks)
    return Selection((), _few(notes), is_code, left_out=tuple(block.code for block in blocks))


def _few(notes: Sequence[str]) -> tuple[str, ...]:
    """The notes that a model may need; it could get as many as there are blocks."""
    more = len(notes) - _MOST_NOTES
    return (*notes[:_MOST_NOTES], *([f"{counted(more, 'more block')} were not run either."] if more > 0 else []))


_OPEN_THOUGHT = (
    "The code in your thoughts was not run, and the tag of these thoughts is never closed. Close it, and write the "
    "code that is to run after it."
)
_CLOSED_THOUGHT = (
    "The code before {} was not run: before a closing tag without an opening one, all is thought. Write the code that "
    "is to run after the tag, or without one."
)
_MOST_NOTES = 20
_MOST_BLOCKS = 1_000
_TAGGED = "Code in <execute> tags is not run here. Put it into a fenced block with its language, as in ```python."
_UNAPPLIED = "No diff is applied here: write code that changes the files."

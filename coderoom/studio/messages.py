"""The messages that show a run on AutoGen Studio's page.

The page shows and stores messages, and drops the events about code, runs and retries. So the server passes each run's
stream through `StudioMessages`, which adds a message with the same facts next to each such event. Agents, teams and
termination conditions never see these messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    MultiModalMessage,
    StopMessage,
    StructuredMessage,
    TextMessage,
)
from autogen_core import Image
from autogen_core.models import RequestUsage

from coderoom._util.text import bound_output, code_span, named, without_escapes
from coderoom.agents import metadata as keys
from coderoom.agents.metadata import StopReason
from coderoom.agents.pictures import picture_of
from coderoom.blocks import extract_code_blocks, fence
from coderoom.errors import CodeRoomError, TeamError
from coderoom.models.services import advice_for
from coderoom.outcome import Outcome
from coderoom.runs.branches import Branches
from coderoom.runs.review import review
from coderoom.runs.story import Branching, Code, Decision, Edit, Output, Question, Story, Thought
from coderoom.sandbox import Artifact

_LONGEST = 20_000
_PLAIN = re.compile(r"[^\W_](?:[ .,:%]?[^\W_])*")
_ON_THE_PAGE = (TextMessage, MultiModalMessage, StopMessage, HandoffMessage)
_EMPTY = (
    "**The model's reply is empty.** If that happens again, check the address of your model service (OPENAI_BASE_URL), "
    "its limits and its filters."
)
_MOST_PICTURES = 10


class StudioMessages:
    """Makes the messages of one run; the questions of the agents in `asking` show the code."""

    def __init__(self, asking: Collection[str] = ()) -> None:
        self._asking = asking
        self._usage: dict[str, RequestUsage | None] = {}
        self._story = Story()

    def show(self, item: Any) -> list[Any]:
        """The items for the page in place of one item of the run's stream: the item, and a message about it."""
        if not isinstance(item, BaseAgentEvent | BaseChatMessage):
            return [item]
        shown: BaseChatMessage | None = None
        told = self._story.tell(item)
        match told:
            case Edit(source=source, text=text):
                shown = _message(source, "code", f"**{_attempt(told)}**\n\n{_not_to_run(text)}")
            case Code(blocks=[_, *_], source=source) if source in self._asking:
                self._usage[source] = item.models_usage
            case Question(source=source):
                return [item.model_copy(update={"models_usage": self._usage.pop(source, None)})]
            case Branching(source=source):
                shown = _message(source, "branches", _tree(told.facts), item.models_usage)
            case Code(source=source, text=text, blocks=blocks):
                title = f"**{_attempt(told)}**" if blocks else f"**{_attempt(told)}: no code to run**"
                shown = _message(source, "code", f"{title}\n\n{_not_to_run(text)}", item.models_usage)
            case Decision(source=source, number=number, again=again, reason=reason):
                what = "another one follows" if again else "there is no further attempt"
                text = f"**Attempt {number} failed: {what}**\n\n{reason}"
                shown = _message(source, "retry_decision", text, item.models_usage)
            case Output(text=output) if isinstance(item, BaseAgentEvent):
                # An agent that runs the code of others answers with the output, which the page renders as Markdown.
                is_plain = _PLAIN.fullmatch(output.strip()) is not None
                shown = run_message(told, with_output=told.is_own or not is_plain)
            case Thought(source=source, text=text):
                quoted = "\n".join(f"> {line}".rstrip() for line in text[:_LONGEST].split("\n"))
                shown = _message(source, "thought", quoted, item.models_usage)
            case _ if isinstance(item, BaseChatMessage):
                shown = _beside(item)
        if shown is None:
            return [item]
        # The page takes the last message for the answer.
        return [item, shown] if isinstance(item, BaseAgentEvent) else [shown, item]


def error_message(source: str, error: BaseException) -> TextMessage:
    """The message for an error, with advice."""
    cause = error
    while isinstance(cause, TeamError):
        source, cause = getattr(cause, "agent", source), cause.cause
    parts = [f"**{source} could not go on: {type(cause).__name__}**"]
    # Only CodeRoom's errors are safe as Markdown. AutoGen's end with a traceback.
    text = str(cause).partition("\nTraceback")[0].strip()[:_LONGEST]
    if text:
        parts.append(text if isinstance(cause, CodeRoomError) else fence(text, "text", "no-run"))
    if advice := advice_for(cause):
        parts.append(advice)
    return _message(source, "error", "\n\n".join(parts))


async def changes_messages(agents: Iterable[Any]) -> list[TextMessage]:
    """The messages about what code has changed in workspaces that stay as they are, one for each executor."""
    owners = {id(owner): (agent.name, owner) for agent in agents if (owner := _overlaid(agent)) is not None}
    messages = []
    for source, owner in owners.values():
        try:
            found = await review([owner], None)
        except CodeRoomError as error:
            messages.append(error_message(source, error))
            continue
        if found is not None:
            diff = bound_output(found.diff, _LONGEST).removesuffix("\n")
            parts = [
                "**Changes**, which are not in the folder",
                "\n".join(f"- {code_span(each)}" for each in found.changes),
                fence(diff, "diff", "no-run"),
            ]
            messages.append(_message(source, "changes", "\n\n".join(parts)))
    return messages


def _overlaid(agent: Any) -> Any:
    executor = getattr(agent, "code_executor", None)
    return executor if getattr(executor, "workspace_mode", "direct") == "overlay" else None


def _message(source: str, what: str, text: str, usage: RequestUsage | None = None) -> TextMessage:
    return TextMessage(source=source, content=text, models_usage=usage, metadata={keys.SHOWN: what})


def _not_to_run(reply: str) -> str:
    """A model's reply for the page: its code is marked `no-run`, and in fences instead of tags."""
    blocks = extract_code_blocks(reply)
    lines = re.split(r"\r\n?|\n", reply)
    if any(block.tag == "execute" for block in blocks):
        first = blocks[0].line - 1
        before = re.split(r"<execute|```|~~~", lines[first], maxsplit=1, flags=re.IGNORECASE)[0]
        prose = "\n".join([*lines[:first], before]).strip()
        return "\n\n".join([prose, *(fence(block.code, block.language, "no-run") for block in blocks)]).strip()
    for block in blocks:
        if not block.no_run:
            lines[block.line - 1] += " no-run" if block.tag else "text no-run"
    marked = "\n".join(lines)
    # A mark may change a fence that closes a block.
    return marked if all(block.no_run for block in extract_code_blocks(marked)) else fence(reply, "text", "no-run")


def _attempt(told: Code | Output) -> str:
    return f"Attempt {told.number}{f' in branch {told.branch}' if told.branch else ''}"


def _tree(facts: Branches) -> str:
    """What came of branches, as a list."""
    lines = [
        f"- {'**goes on**: ' if each.branch == facts.won else ''}{each.number}, {each.outcome or 'no code'}, "
        f"{code_span(each.verdict)}, {each.input_tokens + each.output_tokens:,} tokens, {each.seconds:.1f} s"
        for each in facts.branches
    ]
    return "\n".join([f"**Branching {facts.branching}**", "", *lines])


def run_message(told: Output, *, with_output: bool = True) -> TextMessage | MultiModalMessage:
    """The message about code that has run."""
    attempt, outcome, output = _attempt(told), told.outcome, without_escapes(told.text.strip("\n")[:_LONGEST])
    if outcome == Outcome.REJECTED.value:
        parts = [f"**{attempt} was not allowed to run**"]
    elif told.ran:
        parts = [f"**{attempt}: {outcome}, exit code {told.exit_code}**"]
    else:
        parts = [f"**{attempt} was {told.end}**"]
    if with_output:
        parts.append(fence(output, "text", "no-run") if output.strip() else "It printed nothing.")
    if calls := _listed(told.facts, keys.CALLS):
        parts.append("\n".join(["Functions it called:", *(f"- {code_span(call)}" for call in calls)]))
    artifacts = _listed(told.facts, keys.ARTIFACTS)
    if artifacts:
        parts.append("Files: " + ", ".join(named(artifact["name"]) for artifact in artifacts))
    found = ((each["name"], picture) for each in artifacts if (picture := _picture(each)))
    pictures = dict(islice(found, _MOST_PICTURES))
    full = len(pictures) == _MOST_PICTURES
    kinds = {each["name"]: each["media_type"] or "" for each in artifacts if each["name"] not in pictures}
    drawn = ("image/",) if full else ("image/svg+xml",)
    left_out = [name for name, kind in kinds.items() if kind.startswith(drawn)]
    if left_out:
        parts.append("Pictures that are not shown here: " + ", ".join(map(named, left_out)))
    text = "\n\n".join(parts)
    if not pictures:
        return _message(told.source, "run", text)
    return MultiModalMessage(source=told.source, content=[text, *pictures.values()], metadata={keys.SHOWN: "run"})


def _listed(facts: Mapping[str, str], key: str) -> list[Any]:
    found: list[Any] = json.loads(facts.get(key, "[]"))
    return found


def _picture(artifact: dict[str, str | None]) -> Image | None:
    try:
        path = Path(artifact["path"] or "")
        return picture_of(Artifact(artifact["name"] or "", path.stat().st_size, artifact["media_type"] or "", path))
    except OSError:
        return None


def _beside(answer: BaseChatMessage) -> TextMessage | None:
    """The message about an answer: what it does not say itself, or its content if the page cannot show its type."""
    text = answer.to_text()
    if not isinstance(answer, _ON_THE_PAGE):
        if isinstance(answer, StructuredMessage) and answer.format_string is None:
            text = fence(answer.content.model_dump_json(indent=2), "json", "no-run")
        return _message(answer.source, "answer", text, answer.models_usage)
    if text.strip() in ("", keys.EMPTY_REPLY) and answer.models_usage is not None:
        return _message(answer.source, "stop", _EMPTY)
    # Why there is no further attempt, if no decision said it.
    for reason in (StopReason.RETRIES_EXHAUSTED, StopReason.SAME_FAILURE):
        if reason == answer.metadata.get(keys.STOP_REASON) and reason.why_no_more not in text:
            return _message(answer.source, "stop", f"**There is no further attempt:** {reason.why_no_more}.")
    return None

"""`Attempt`: code and its result; `Turn`: the attempts of a turn; and what agents say of them.

When there is no other attempt is in `Turn.stop_reason`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, HandoffMessage, TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.models import CreateResult

from coderoom._util.text import named, visible
from coderoom.agents import metadata as keys
from coderoom.agents.metadata import StopReason
from coderoom.agents.replay import digest_of
from coderoom.agents.selection import Selection
from coderoom.blocks import extract_code_blocks, fence
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, FunctionCall


@dataclass(frozen=True, kw_only=True)
class Attempt(ExecutionResult):
    """The result of code in a turn, with its output cut to the limit.

    Attributes:
        number: Which attempt of the turn this is, counted from 1.
        selection: What was run, or would have been run, and what was not, and why.
        output_file: The file with the whole output, if `output` is only its head and tail.
        reason: Why it was rejected.
        refusal: The same in a sentence; empty if it was allowed.
        is_final: Whether there is no other attempt after it was rejected.
        edited: Whether a person has edited the code before it ran.
        incomplete: Whether it succeeded but for the code that is missing.
        undone: Whether the files were restored after it.
        not_undone: The calls of failed code that have an effect still; `None`: all of its own, if it has failed.
        stopped_by_check: Whether nothing was run, since a check before has found errors; `output` has them.
    """

    number: int
    selection: Selection
    output_file: Path | None = None
    reason: str = ""
    refusal: str = ""
    is_final: bool = True
    edited: bool = False
    incomplete: bool = False
    undone: bool = False
    not_undone: tuple[FunctionCall, ...] | None = None
    stopped_by_check: bool = False

    @property
    def blocks(self) -> tuple[CodeBlock, ...]:
        """What was run, or would have been run."""
        return self.selection.blocks

    @property
    def failure(self) -> str | None:
        """A fingerprint of the code and its failure, or `None` if it did not fail.

        Addresses, decimal numbers (times, for instance) and cell numbers are ignored: they differ between runs.
        """
        if self.outcome is Outcome.OK:
            return None
        # The file with the whole output has a new name each time.
        output = self.output.replace(self.output_file.name, "") if self.output_file else self.output
        error = re.sub(r"(?<!\d)\d++\.\d++", "#", output.strip())
        code = [f"{block.language}\n{block.code.strip()}" for block in self.blocks]
        return digest_of(error, self.outcome, str(self.exit_code), *code, *self.selection.left_out)

    @property
    def code_result(self) -> CodeResult:
        """The result as AutoGen's type, for events."""
        instead = self.reason if self.refusal else "" if self.blocks else "\n".join(self.selection.notes)
        return CodeResult(exit_code=self.exit_code, output=instead or self.output)

    def fenced(self) -> list[str]:
        """The blocks as Markdown. No agent that finds them runs them."""
        return [fence(block.code, block.language, "no-run") for block in self.blocks]

    @property
    def ran(self) -> bool:
        """Whether anything was run at all."""
        return bool(self.blocks) and not self.refusal and not self.stopped_by_check

    def describe(self) -> str:
        """Describe what happened, for a model.

        The sentences about exit codes and approval are those of AutoGen's agent, since its users may search for them.
        """
        parts = [self._result_in_words(), *self.selection.notes]
        if self.edited:
            parts.insert(0, "\n\n".join([EDITED, *self.fenced()]))
        parts += self.edited_calls()
        if self.calls_left and self.outcome is not Outcome.OK:
            parts.append(calls_made(self.calls_left))
        made = [f"{each.name} ({each.media_type}, {each.size:,} bytes)" for each in self.artifacts]
        if made:
            parts.append(f"Files made or changed: {', '.join(made)}")
        return parts[0] if len(parts) == 1 else "\n\n".join([parts[0].rstrip(), *parts[1:]])

    @property
    def calls_left(self) -> tuple[FunctionCall, ...]:
        """The calls that code which failed has made, and that are not undone."""
        if self.not_undone is not None:
            return self.not_undone
        return () if self.outcome is Outcome.OK else tuple(call for call in self.calls if call.has_effect)

    def edited_calls(self) -> list[str]:
        """A text on the calls with other arguments than the code gave, if it worked and there are some."""
        edited = [call for call in self.calls if call.edited and self.outcome is Outcome.OK]
        return [_listed("These calls were made with other arguments than the code gave:", edited)] if edited else []

    def _result_in_words(self) -> str:
        if self.refusal:
            return self.refusal
        if not self.blocks:
            return "Nothing was run."
        if self.stopped_by_check:
            return self.output
        if self.outcome is Outcome.OK:
            return self.output if self.output.strip() else _NO_OUTPUT
        output = self.output if self.output.strip() else "(nothing)"
        if self.incomplete:
            return f"Only the complete blocks were run. Their output was:\n{output}"
        if self.outcome is Outcome.TIMEOUT:
            return f"The script took too long and was stopped. Its output until then was:\n{output}"
        if self.outcome is Outcome.CANCELLED:
            return f"The script was stopped from outside. Its output until then was:\n{output}"
        if self.outcome is Outcome.MEMORY:
            return f"The script wanted more memory than it may have and was stopped. Its output was:\n{output}"
        return (
            f"The script ran, then exited with an error (POSIX exit code: {self.exit_code})\nIts output was:\n{output}"
        )


def refused(number: int, selection: Selection, reason: str, *, is_final: bool = True) -> Attempt:
    """An attempt whose code was not allowed to run."""
    reason = visible(reason)
    # Nothing in a reason is code, or looks like output.
    quoted = f"\n{fence(reason, 'text', 'no-run')}" if _NOT_A_SENTENCE.search(reason) else reason
    refusal = f"Code execution was not approved. Reason: {quoted}"  # In the words of AutoGen's agent.
    return Attempt(
        Outcome.REJECTED, 1, number=number, selection=selection, reason=reason, refusal=refusal, is_final=is_final
    )


def calls_made(calls: Sequence[FunctionCall]) -> str:
    """Describe function calls, which cannot be undone, for a model."""
    return _listed("These calls of functions were made before that, and are not undone:", calls)


def calls_of_failures(calls: Sequence[FunctionCall]) -> list[str]:
    """Describe the function calls of failed code that are not undone, for other agents; empty if there are none."""
    return (
        [_listed("Code that failed has made these calls of functions, which are not undone:", calls)] if calls else []
    )


def _listed(title: str, calls: Sequence[FunctionCall]) -> str:
    shown = [f"- {call}" for call in calls[:MOST_CALLS]]
    if len(calls) > len(shown):
        shown.append(f"- and {len(calls) - len(shown):,} more")
    return "\n".join([title, *shown])


MOST_CALLS = 20
_NOT_A_SENTENCE = re.compile(r"\n|```|~~~|<")
EDITED = "A person has edited the code. It is now:"
_NO_OUTPUT = (
    "The script ran but produced no output to console. The POSIX exit code was: 0. If you were expecting output, "
    "consider revising the script to ensure content is printed to stdout."
)


Ending = TextMessage | HandoffMessage
"""The message that ends a turn."""


@dataclass
class Turn:
    """What has happened in a turn so far. The agents' own turns add their limits.

    Attributes:
        token: Ends the turn's model calls and its code.
        attempts: The attempts so far, in order.
        tokens: How many tokens the model calls have used.
        answer: The message that ends the turn, once there is one.
        interrupted: Whether the last attempt was cut short by the end of the turn.
    """

    token: CancellationToken
    attempts: list[Attempt] = field(default_factory=list)
    tokens: int = 0
    answer: Ending | None = None
    interrupted: bool = False

    @property
    def number(self) -> int:
        """The number of the next attempt, from 1."""
        return len(self.attempts) + 1

    @property
    def whole(self) -> Attempt | None:
        """The last attempt, which stands for the turn; `None` if there is none."""
        return self.attempts[-1] if self.attempts else None

    @property
    def was_refused(self) -> bool:
        """Whether the last attempt was rejected."""
        return bool(self.attempts) and self.attempts[-1].outcome is Outcome.REJECTED

    @property
    def stop_reason(self) -> StopReason | None:
        """Why there is no further attempt, whatever the limits; `None` if there may be one."""
        if not self.attempts:
            return None
        *earlier, last = self.attempts
        refused = [each.blocks for each in earlier if each.outcome is Outcome.REJECTED]
        if self.was_refused and (last.is_final or last.blocks in refused):
            return StopReason.REJECTED
        if last.outcome is Outcome.CANCELLED:
            return StopReason.CANCELLED
        if last.failure is not None and any(last.failure == attempt.failure for attempt in earlier):
            return StopReason.SAME_FAILURE
        return None


TurnT = TypeVar("TurnT", bound=Turn)
_SAME = 3


@dataclass
class LimitedTurn(Turn):
    """A turn of a `CodeActAgent`.

    Attributes:
        max_steps: The most attempts.
        max_tokens: The most tokens.
        asked_again: Whether the model was informed that code in a reply was not run.
        late: Whether the time limit has ended the turn.
    """

    max_steps: int = 10
    max_tokens: int | None = None
    asked_again: bool = False
    late: bool = False

    def end_late(self) -> None:
        """End the turn at its time limit. Nothing begins afterwards, even if a client ignores its cancellation."""
        self.late = True
        self.token.cancel()

    @property
    def known_texts(self) -> list[str]:
        """The code that was run and what it printed."""
        codes = [block.code for attempt in self.attempts for block in attempt.blocks]
        return [*codes, *(attempt.output for attempt in self.attempts)]

    @property
    def whole(self) -> Attempt | None:
        """The last attempt, with all existing files that the turn has made or changed, and all calls that are left."""
        if not self.attempts:
            return None
        found = {item.name: item for attempt in self.attempts for item in attempt.artifacts if not attempt.undone}
        there = tuple(item for item in found.values() if item.path is None or item.path.exists())
        left = tuple(call for attempt in self.attempts for call in attempt.calls_left)
        return replace(self.attempts[-1], artifacts=there, not_undone=left)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why there is no further step; `None` if there is one."""
        if self.late:
            return StopReason.MAX_SECONDS
        if not self.attempts:
            return None
        if reason := super().stop_reason:
            return reason
        last = [(each.blocks, each.output) for each in self.attempts[-_SAME:]]
        if len(last) == _SAME and all(each == last[0] for each in last):
            return StopReason.SAME_RESULT
        if len(self.attempts) >= self.max_steps:
            return StopReason.REJECTED if self.was_refused else StopReason.MAX_STEPS
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            return StopReason.MAX_TOKENS
        return None


# --- What agents say of it: events, and the report that ends a turn ---


def report(summary: str, attempt: Attempt) -> str:
    """The final message of a turn: the model's words, then the code, the exit code and the output.

    The code is marked `no-run`, so that an agent that runs code found in messages does not run it again.
    """
    parts = [summary.strip()] if summary.strip() else []
    if not all(block.closed for block in extract_code_blocks(summary.strip())):
        parts = [fence(summary.strip(), "text", "no-run")]  # A fence without an end would contain the report after it.
    if attempt.ran:
        parts.append(f"Attempt {attempt.number}: {attempt.outcome}, exit code {attempt.exit_code}.")
    else:
        parts.append(f"Attempt {attempt.number} was not run. {attempt.refusal}".strip())
    parts += [EDITED] if attempt.edited else []
    parts += attempt.fenced()
    if attempt.output.strip():
        parts += ["What was found:" if attempt.stopped_by_check else "Output:", fence(attempt.output, "text", "no-run")]
    if attempt.artifacts:
        parts.append(f"Files: {', '.join(named(artifact.name) for artifact in attempt.artifacts)}")
    about_calls = [*attempt.edited_calls(), *calls_of_failures(attempt.calls_left)]
    return "\n\n".join([*parts, *about_calls, *attempt.selection.notes])


def facts(attempt: Attempt, stop_reason: StopReason | None = None) -> dict[str, str]:
    """An attempt as metadata, for programs."""
    found = {
        keys.OUTCOME: attempt.outcome.value,
        keys.EXIT_CODE: str(attempt.exit_code),
        keys.RAN: str(attempt.ran).lower(),
        keys.ATTEMPTS: str(attempt.number),
        **({keys.EDITED_CODE: "true"} if attempt.edited else {}),
        **({keys.CHECKED: "failed"} if attempt.stopped_by_check else {}),
    }
    if stop_reason is not None:
        found[keys.STOP_REASON] = stop_reason.value
    if attempt.failure is not None:
        found[keys.FAILURE] = attempt.failure
    if attempt.artifacts:
        listed = [
            {"name": item.name, "media_type": item.media_type, "path": None if item.path is None else str(item.path)}
            for item in attempt.artifacts
        ]
        found[keys.ARTIFACTS] = json.dumps(listed)
    if attempt.output_file is not None:
        found[keys.OUTPUT_FILE] = str(attempt.output_file)
    return found


def code_event(
    source: str, message_id: str, reply: CreateResult, attempt: int, blocks: Sequence[CodeBlock]
) -> CodeGenerationEvent:
    """The model has written code, as attempt number `attempt`."""
    return CodeGenerationEvent(
        id=message_id,
        retry_attempt=attempt - 1,
        content=str(reply.content),
        code_blocks=list(blocks),
        source=source,
        models_usage=reply.usage,
    )


def edited_event(source: str, attempt: Attempt) -> CodeGenerationEvent:
    """A person has edited the code of an attempt."""
    return CodeGenerationEvent(
        retry_attempt=attempt.number - 1,
        content="\n\n".join([EDITED, *attempt.fenced()]),
        code_blocks=list(attempt.blocks),
        source=source,
        metadata={keys.EVENT: keys.EDITED},
    )


def execution_event(source: str, attempt: Attempt) -> CodeExecutionEvent:
    """The code has run, or was rejected."""
    found = facts(attempt)
    if attempt.calls:
        found[keys.CALLS] = json.dumps([str(call) for call in attempt.calls[:MOST_CALLS]])
    return CodeExecutionEvent(
        retry_attempt=attempt.number - 1, result=attempt.code_result, source=source, metadata=found
    )


def final_message(
    source: str,
    message_id: str,
    reply: CreateResult | None,
    attempt: Attempt | None,
    stop_reason: StopReason = StopReason.NO_CODE,
    otherwise: str = "",
) -> TextMessage:
    """The turn has ended, with a reply of the model, `otherwise` without one, and a report if it has run code."""
    text, usage = ("", None) if reply is None else (str(reply.content), reply.usage)
    if reply is not None and not text.strip():
        text, otherwise = "", keys.EMPTY_REPLY
    cut = None if reply is None else keys.WHY_CUT.get(reply.finish_reason)
    if cut:
        text = f"{text.rstrip()}\n\n(The model's reply is incomplete: {cut}.)".lstrip()
    if attempt is None:
        content, metadata = text or otherwise, {keys.STOP_REASON: stop_reason.value}
    else:
        # An answer does not change the result of the code.
        content, metadata = report(text or otherwise, attempt), facts(attempt, stop_reason) | {keys.SUMMARY: text}
    if reply is not None and cut:
        metadata[keys.CUT] = reply.finish_reason
    return TextMessage(id=message_id, content=content, source=source, models_usage=usage, metadata=metadata)

"""Code of a session's past that is run again, so that its variables come back. Used by all coding agents."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from pydantic import Field, TypeAdapter

from coderoom._util.autogen import acting_as, current_agent
from coderoom._util.components import StrictConfig
from coderoom._util.tasks import await_with_token
from coderoom.agents.inverses import Made
from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import CallRecorder, ExecutionResult, RecordedCall
from coderoom.steps import branch, cell, find_now, keep_step, runs_again

if TYPE_CHECKING:
    from coderoom.contracts import Executor  # It imports the judge.

keeps_cut_code: Final[ContextVar[bool]] = ContextVar("coderoom_keeps_cut_code", default=False)
"""Whether what code has done that a cancellation ends stays, as in a chat: its person says how to go on.

Elsewhere, a team puts the agent back to before its turn.
"""
_BEGINNING = 500
_SHOWN = 200
_RUN_AGAIN = (
    "The session was restarted, and the code that had succeeded in it was run again, without calling functions again."
)


class PastCell(StrictConfig):
    """Code that has run, with the results of its function calls, and what is known of how it ended."""

    blocks: list[CodeBlock]
    calls: list[RecordedCall] = Field(default_factory=list)
    output: str | None = None
    output_digest: str | None = None
    outcome: Outcome = Outcome.OK

    def with_output(self, output: str) -> Self:
        """The same with this output."""
        known = {"output": output[:_BEGINNING], "output_digest": digest_of(output)}
        return self.model_copy(update=known)

    @property
    def words(self) -> str:
        """What to call it in a sentence."""
        lines = (line.strip() for block in self.blocks for line in block.code.splitlines())
        return f"the code that begins with {next(filter(None, lines), '')[:100]!r}"


class LeftByPerson(PastCell):
    """What a person has left of changes that are kept apart, in its place among code.

    Attributes:
        put_back: Has the changes again that there were then, in place of those that the code before has made now.
    """

    put_back: Callable[[], Awaitable[None]]


class Replayed(NamedTuple):
    """What came of code that was run again.

    Attributes:
        cell: The code with its new output; `None` if what it had set is lost.
        remark: What is lost, or came out otherwise; empty if all is as before.
    """

    cell: PastCell | None
    remark: str


async def run_again(cell: PastCell, executor: Executor, cancellation_token: CancellationToken) -> Replayed:
    """Run code again, unless it was ended from outside: that could not give the same again."""
    if isinstance(cell, LeftByPerson):
        try:
            await await_with_token(cell.put_back(), cancellation_token)
        except RequestError as error:
            return Replayed(None, f"the changes that a person had left: {error}")
        return Replayed(cell, "")
    if cell.outcome not in (Outcome.OK, Outcome.ERROR):
        return Replayed(None, f"{cell.words} had ended with {cell.outcome.value!r} and was not run again")
    result = await executor.run(cell.blocks, cancellation_token)
    if result.outcome is not cell.outcome:
        end = next((line for line in reversed(result.output.splitlines()) if line.strip()), "no output")
        return Replayed(None, f"{cell.words} ended with {result.outcome.value!r} this time ({end[:_SHOWN]})")
    if cell.output_digest in (None, digest_of(result.output)):
        return Replayed(cell, "")
    before, now = (text.strip()[:_SHOWN] for text in (cell.output or "", result.output))
    return Replayed(cell.with_output(result.output), f"{cell.words} gave {before!r} before and {now!r} now")


@contextmanager
def as_before(name: str, there: str, agent: str) -> Iterator[None]:
    """Have calls of functions be known as those of code with this name, of a branch and an agent."""
    here = branch.get()
    cell.set(name)
    branch.set(there)
    acting_as.set(agent)
    runs_again.set(True)
    try:
        yield
    finally:
        branch.set(here)
        acting_as.set(None)
        runs_again.set(False)


class AllReplayed(NamedTuple):
    """What came of all code of a session that was run again.

    Attributes:
        cells: The code that came back, with its new output.
        lost: What is lost.
        changed: What came out otherwise.
    """

    cells: list[PastCell]
    lost: list[str]
    changed: list[str]

    def notes(self) -> list[str]:
        """What the model has to know; empty if all is as before."""
        notes = []
        if self.lost:
            gone = "What that code had set is gone. Set it again before you use it."
            notes.append(f"Not everything came back:\n{_listed(self.lost)}\n{gone}")
        if self.changed:
            look = "What it has set may differ from what you saw before; look at it again before you rely on it."
            notes.append(f"Some of it came out otherwise this time:\n{_listed(self.changed)}\n{look}")
        if notes:
            notes[0] = f"{_RUN_AGAIN} {notes[0]}"
        return notes


async def run_all_again(
    cells: Sequence[PastCell], recorder: CallRecorder, executor: Executor, cancellation_token: CancellationToken
) -> AllReplayed:
    """Run the code of a session again, with the recorded results of its calls of functions."""
    replayed = AllReplayed([], [], [])
    try:
        for cell in cells:
            recorder.answer_from(cell.calls)
            again = await run_again(cell, executor, cancellation_token)
            if again.cell is None:
                replayed.lost.append(again.remark)
                continue
            if again.remark:
                replayed.changed.append(again.remark)
            replayed.cells.append(again.cell)
    finally:
        recorder.answer_from(None)
    return replayed


@asynccontextmanager
async def keeping_changes(executor: Any) -> AsyncIterator[None]:
    """Have the changes of an overlay as they are, whatever code changes that runs again in this context.

    A person may have written, taken back or undone some of them since that code ran first.
    """
    saved = None
    if getattr(executor, "workspace_mode", "direct") == "overlay":
        with suppress(RequestError):  # There are too many.
            saved = await executor.checkpoint()
    try:
        yield
    finally:
        if saved is not None:
            if saved.files is not None:
                await saved.files.restore()
            await executor.release(saved)


def note_changes(agent: Any, put_back: Callable[[], Awaitable[None]]) -> None:
    """In a resumed run, note that a person has changed what code had changed, after the code of an agent so far.

    Args:
        agent: The agent.
        put_back: Has the changes again that there were then.
    """
    agent._runner.past.known.append(("", "", "", LeftByPerson(put_back=put_back, blocks=[], outcome=Outcome.OK)))


def is_behind(agents: Sequence[Any]) -> bool:
    """Whether there is code whose results are only known, so that `catch_up` would run it again."""
    return any(agent._runner.past.known for agent in agents)


async def catch_up(agents: Sequence[Any]) -> None:
    """Run code again whose results are only known, so that the sessions of coding agents have what it had set."""
    nothing = [CodeBlock(code="pass", language="python")]
    for agent in agents:
        if agent._runner.past.known:
            await agent.run_given(nothing, CancellationToken(), kept=False)


@dataclass
class SessionPast:
    """What has run in a session.

    Attributes:
        known: The code whose results are known from before the run was resumed, which has not run in this session yet,
            with its names, branches and agents.
        has_run: Whether code has run.
        count: How much code was to run.
        branchings: How often the session has become one of its forks since it began.
        cells: All code that has run, if agents share the session: what is to run again in a new one.
        to_restore: Whether it is to run again before the next code.
        made: The calls of functions that have an effect still.
    """

    known: list[tuple[str, str, str, PastCell]] = field(default_factory=list)
    has_run: bool = False
    count: int = 0
    branchings: int = 0
    cells: list[PastCell] = field(default_factory=list)
    to_restore: bool = False
    made: list[Made] = field(default_factory=list)

    def copy(self) -> SessionPast:
        """It as it is now."""
        return replace(self, known=list(self.known), cells=list(self.cells), made=list(self.made))

    def known_last(self, blocks: Sequence[CodeBlock]) -> PastCell | None:
        """The code whose results are known if it is these blocks, and the last of it."""
        last = self.known[-1][-1] if self.known else None
        return last if last is not None and last.blocks == list(blocks) else None

    def known_of_cut(self, blocks: Sequence[CodeBlock], result: ExecutionResult) -> ExecutionResult:
        """What is known of code that a cancellation has ended; in a resumed run, what was known of it then."""
        if not keeps_cut_code.get():
            return result
        request = {"blocks": [[block.language, block.code] for block in blocks]}
        if (found := find_now("cut", request)) is None:
            keep_step("cut", request, dump_result(result), 0.0)
            return result
        cut = PastCell(blocks=list(blocks), outcome=Outcome.CANCELLED)
        self.known.append(("", branch.get(), current_agent(), cut))
        self.made.append(Made.now((known := load_result(found)).calls))
        return known

    def take_made(self, begin: int) -> list[Made]:
        """Take the calls from a place on."""
        made = self.made[begin:]
        del self.made[begin:]
        return made


def digest_of(output: str, *more: str) -> str:
    """A digest of an output, without addresses and cell numbers, which always differ."""
    text = "\0".join([re.sub(r"0x[0-9a-fA-F]+|<cell \d+>", "#", output), *more])
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


_RESULT = TypeAdapter(ExecutionResult)


def load_result(found: Any) -> ExecutionResult:
    """A result as `dump_result` has kept it."""
    return _RESULT.validate_python(found)


def dump_result(result: ExecutionResult) -> Any:
    """A result as JSON-like data for the journal."""
    # Agents read the output, which has the texts that are left out; the value is for callers of the sandbox.
    left_out: Any = {
        **dict.fromkeys(("value", "value_is_data", "value_repr", "code", "stdout", "stderr"), True),
        "error": {"traceback"},
        "artifacts": {"__all__": {"data"}},
    }
    return _RESULT.dump_python(result, mode="json", exclude=left_out, fallback=str)


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)

"""The session of a `CodeActAgent`: its functions, its cells, and how it comes back after a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import replace
from typing import Any, Literal
from weakref import WeakKeyDictionary, ref

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_core.models import LLMMessage
from autogen_core.tools import Workbench

from coderoom._util.tasks import await_with_token, run_uncancellable
from coderoom.agents.attempt import Attempt, calls_made
from coderoom.agents.code_runner import CodeRunner
from coderoom.agents.eager import Eager
from coderoom.agents.inverses import Functions, Made, Undone, undo
from coderoom.agents.replay import PastCell, keeping_changes, run_all_again
from coderoom.agents.selection import Selection
from coderoom.agents.shared_session import SharedSession
from coderoom.agents.tool_search import ToolSearch
from coderoom.agents.tools import Workbenches
from coderoom.approval import Approval, ApprovalFuncType, CallGate
from coderoom.errors import CodeRoomError, RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import (
    CallRecorder,
    ExecutionResult,
    FunctionCall,
    HostFunction,
    OnOutput,
    host_functions,
)
from coderoom.sandbox.functions.callables import Offer
from coderoom.skills import Skills
from coderoom.steps import find_step, keep_step, note

OnError = Literal["keep", "rollback"]

_users: WeakKeyDictionary[CodeExecutor, ref[CodeActSession]] = WeakKeyDictionary()


class CodeActSession:
    """Runs an agent's cells, and remembers those that succeeded.

    Attributes:
        shared: The session that other agents use, too, which remembers the cells; `None`: only this one's.
        tool_search: What the model is shown of the functions, and what it has found of them.
    """

    def __init__(
        self,
        runner: CodeRunner,
        tools: Offer,
        workbenches: Sequence[Workbench],
        on_error: OnError,
        variables: Mapping[str, Any],
        imports: Mapping[str, str],
        skills: Skills | None,
        gate: CallGate,
        tool_search: ToolSearch,
    ) -> None:
        self._gate = gate
        gate.check(tools.known)
        if not workbenches:  # Their functions are known once they are started.
            gate.check_inverses(tools.known)
        tool_search.check(tools.known)
        self._executor: CodeExecutor = runner.given
        lines = [f"import {module} as {name}" for name, module in imports.items()]
        lines += [f"{name} = {value!r}" for name, value in variables.items()]
        self._variables = CodeBlock(code="\n".join(lines), language="python") if lines else None
        self._are_set = False
        self._runner = runner
        self._tools = tools
        self._workbenches = Workbenches(workbenches)
        self._skills = skills
        self.tool_search = tool_search
        self._on_error = on_error
        self._recorder = CallRecorder()
        self._functions: tuple[HostFunction, ...] | None = None
        self._offered: tuple[HostFunction, ...] | None = None
        self.shared: SharedSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cells: list[PastCell] = []
        self._failed = 0
        self._to_restore = self._is_closed = False
        self._called: list[FunctionCall] = []
        self._plain: dict[str, HostFunction] = {}
        self._forgotten: list[FunctionCall] = []
        self._news: str | None = None  # `None`: nothing was restored.
        self._branch = ""
        self.early: Eager | None = None
        runner.recorder, runner.functions = self._recorder, self.inverses

    def share(self, session: SharedSession) -> None:
        """Have the cells run in a session that other agents use, too; see `CodeRunner.share`."""
        if self.early is not None:
            raise ValueError("eager=True and shared_session=True cannot be combined.")
        self.shared, self._executor = session, session.executor

    def ask_about_calls_instead(self, change: Callable[[Any], Approval | ApprovalFuncType]) -> None:
        """Ask what this makes of the agent's `call_approval`, if there is one."""
        if self._gate.approval is not None:
            self._gate.approval = change(self._gate.approval)

    async def functions(self) -> tuple[HostFunction, ...]:
        """The agent's functions, which are offered to its cells; see `find_functions`."""
        if self.shared is not None:
            await self.shared.offer()
            return await self.find_functions()
        # Its functions and the code that is run again belong to one agent.
        user = _users.get(self._executor)
        if (user and user()) not in (None, self):
            raise RequestError(
                "Another CodeActAgent uses this executor. Give each agent one of its own, close the other one first, "
                "or use CodingTeam(shared_session=True)."
            )
        _users[self._executor] = ref(self)
        functions = await self.find_functions()
        if functions is not self._offered and isinstance(self._executor, SandboxCodeExecutor):
            offered = [self._recorder.wrap(function) for function in functions]
            await self._executor.offer(offered if self.early is None else await self.early.functions(offered))
            self._offered = functions
        return functions

    async def find_functions(self) -> tuple[HostFunction, ...]:
        """The agent's functions; workbenches are started for their tools on first use."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:  # The session and the workbenches were left in the other.
            self._to_restore, self._functions, self._are_set = True, None, False
            await self._workbenches.stop()
        self._loop = loop
        if self._functions is None:
            of_skills = [] if self._skills is None else await self._skills.functions()
            of_tools = (await self._tools.list()).values()
            found = await host_functions([*of_tools, *await self._workbenches.functions(), *of_skills])
            self._gate.check(found)
            self._gate.check_rules(found)
            self._gate.check_inverses(found)
            self._plain = {function.name: function for function in found}
            functions = tuple(map(self._gate.guard, found))
            always = [function.name for function in of_skills]
            self._functions = await self.tool_search.offer(functions, self._workbenches.kinds, always)
        return self._functions

    async def inverses(self) -> Functions:
        """The functions as they undo calls; none if none does."""
        await self.find_functions()
        undo = any(map(self._gate.inverse_of, self._plain.values()))
        return {name: self._gate.unasked(each) for name, each in self._plain.items()} if undo else {}

    def search_in(self, functions: Iterable[HostFunction]) -> None:
        """Have the search for functions find all of a shared session."""
        self.tool_search.search_in(functions)

    async def run(
        self,
        number: int,
        selection: Selection,
        context: Sequence[LLMMessage],
        cancellation_token: CancellationToken,
        on_output: OnOutput | None,
    ) -> Attempt:
        """Run the blocks of a reply; with `on_error="rollback"`, undo a failure."""
        if self.early is None or not self.early.has_begun:
            await self.begin(cancellation_token)
        undo = True
        try:
            try:
                attempt = await self._runner.attempt(number, selection, context, cancellation_token, on_output)
                undo = attempt.outcome is not Outcome.CANCELLED
            finally:
                # After a cancellation, this is what is known about the attempt.
                await run_uncancellable(self._conclude(undo))
        finally:
            await self._runner.release()
        return self._runner.last_attempt or attempt

    async def begin(self, cancellation_token: CancellationToken) -> None:
        """Make all ready for new code."""
        await await_with_token(self._workbenches.restart_broken(), cancellation_token)
        await self.set_variables(cancellation_token)
        self._recorder.take()

    async def run_given(
        self,
        blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken,
        on_output: OnOutput | None,
        *,
        kept: bool,
    ) -> ExecutionResult:
        """Run code of a person; see `CodeRunner.run_given`."""
        await self.set_variables(cancellation_token)
        self._recorder.take()
        result = await self._runner.run_given(blocks, cancellation_token, on_output, kept=kept)
        if self.shared is not None:
            return result
        if result.state_lost:
            self._cells, self._failed = [], 0
            self.forget_variables()
        if kept and result.outcome is Outcome.OK:
            done = PastCell(blocks=list(blocks), calls=list(self._runner.records)).with_output(result.output)
            self._cells.append(self._runner.past.known_last(blocks) or done)
        elif kept:
            self._failed += 1
        return result

    @property
    def failures(self) -> int:
        """How often code has failed, and was not undone, since the session began."""
        return self._failed

    @property
    def code(self) -> tuple[CodeBlock, ...]:
        """What has set the variables of the session, and succeeded."""
        first = () if self._variables is None else (self._variables,)
        return (*first, *(block for cell in self._cells for block in cell.blocks))

    def state(self) -> tuple[Any, ...]:
        """What has run so far, for `go_back`."""
        return list(self._cells), self._failed, self._are_set, self._to_restore, list(self.tool_search.found)

    def go_back(self, state: tuple[Any, ...]) -> None:
        """Go on from a `state`, which the executor has again."""
        cells, self._failed, self._are_set, self._to_restore, found = state
        self._cells, self.tool_search.found = list(cells), list(found)

    def branch(self, runner: CodeRunner, name: str) -> CodeActSession:
        """The session of a branch with a name, whose code `runner` runs."""
        made = copy(self)
        made._branch = name
        made._runner, made._cells, made._called, made.early = runner, list(self._cells), [], None
        made.tool_search = self.tool_search.copy()
        return made

    async def join(self, branches: Sequence[CodeActSession], kept: CodeActSession | None) -> Undone:
        """Go on from the state of a branch, or from that before the branches; undo the calls of the others."""
        self._gate.go_on_from("" if kept is None else kept._branch)
        self._called += [call for each in branches for call in each._called]
        made = [made for each in branches if each is not kept for made in each._runner.past.made]
        undone = await undo(sorted(made, key=lambda each: each.number), await self._runner.functions())
        if undone.left:
            self._runner.past.made.append(Made.now(undone.left))
        if kept is not None:
            self._cells, self._failed, self._are_set = kept._cells, kept._failed, kept._are_set
            self.tool_search.found = kept.tool_search.found
        return undone

    async def set_variables(self, cancellation_token: CancellationToken) -> None:
        """Import the initial modules and set the initial variables in a session that is new."""
        if self._variables is not None and not self._are_set:
            result = await self._runner.executor.run([self._variables], cancellation_token)
            if result.outcome in (Outcome.ERROR, Outcome.REJECTED):
                lines = [line for line in result.output.splitlines() if line and line[0] not in " ["]
                why = lines[-1] if lines else result.outcome.value
                raise RequestError(f"The initial imports and variables of a CodeActAgent cannot be set: {why}")
            self._are_set = result.outcome is Outcome.OK

    def forget_variables(self) -> None:
        """The session has begun anew, without the initial variables and what persons have allowed in it."""
        self._are_set = False
        self._gate.forget()

    async def _conclude(self, undo: bool) -> None:
        """Remember code that succeeded; undo other code, unless its executor was stopped, which is not undone."""
        attempt = self._runner.last_attempt
        if attempt is None:
            return
        self._workbenches.note(attempt.calls)
        if attempt.calls:
            self.tool_search.note(attempt.calls)
        undone = ""
        if attempt.ran and attempt.outcome is not Outcome.OK and undo and self._on_error == "rollback":
            with suppress(CodeRoomError):  # Without a note, the model assumes nothing.
                undone = await self._runner.undo(CancellationToken())
        if undone:
            calls = await self._runner.undo_calls()
            self._called += calls.left
            notes = [f"The failed code was undone: {undone} are as they were before it.", *calls.words]
            selection = replace(attempt.selection, notes=(*attempt.selection.notes, *notes))
            self._runner.last_attempt = replace(
                attempt, selection=selection, undone="files" in undone, not_undone=calls.left
            )
            return
        self._called += attempt.calls
        if self.shared is not None:
            return
        if attempt.state_lost:
            self._cells, self._failed = [], 0
            self.forget_variables()
        if attempt.outcome is Outcome.OK and (known := self._runner.past.known_last(attempt.blocks)) is not None:
            self._cells.append(known)  # Which gets its calls once it has run again.
        elif attempt.outcome is Outcome.OK:
            cell = PastCell(blocks=list(attempt.blocks), calls=list(self._runner.records))
            # Of a long output only a part is known.
            self._cells.append(cell if attempt.output_file else cell.with_output(attempt.output))
        elif attempt.ran:
            self._failed += 1

    def end_turn(self) -> None:
        """The turn has ended: all its calls are in the conversation."""
        self._called = []

    async def save(self) -> dict[str, Any]:
        """The arguments of `load`."""
        cells = self._cells if self.shared is None else self.shared.past.cells
        workbench = await self._workbenches.save_state()
        return {"cells": cells, "failed": self._failed, "workbench": workbench, "found_tools": self.tool_search.found}

    async def load(
        self,
        cells: Sequence[PastCell],
        failed: int,
        workbench: Sequence[Mapping[str, Any]],
        found_tools: Sequence[str],
    ) -> None:
        """Restore these cells before the next use."""
        self.tool_search.found = list(found_tools)
        if self.shared is not None:
            self.shared.load(cells)
        else:
            self._cells, self._failed, self._to_restore = list(cells), failed, True
        # If a team resets a failed turn, the conversation no longer contains its calls.
        self._forgotten += self._called
        self._called = []
        await self._workbenches.load_state(workbench)

    @property
    def runs_again(self) -> bool:
        """Whether cells are run again before the next use."""
        return self.shared is None and self._to_restore and bool(self._cells)

    async def restore(self, cancellation_token: CancellationToken) -> None:
        """Run the loaded cells again, once, without calling functions of the host again; see `take_news`."""
        self.end_turn()  # One that was cut is in the conversation, unless it was put back.
        if self.shared is not None:
            await self.shared.prepare(cancellation_token)
            news, forgotten = self._runner.news(), self._take_forgotten()
            if news is not None or forgotten:
                self._news = "\n\n".join(filter(None, [news, *forgotten]))
            return
        is_there = self._runner.is_current and not self._is_closed
        self._is_closed = False
        if not self._to_restore:
            return
        await self._runner.restart()
        self.forget_variables()
        async with keeping_changes(self._executor) if is_there else nullcontext():
            await self.set_variables(cancellation_token)
            again = await run_all_again(self._cells, self._recorder, self._runner.executor, cancellation_token)
        if self._failed:
            again.lost.append(f"code that had not ended well ({self._failed} times) was not run again")
        self._cells, self._failed, self._to_restore = again.cells, 0, False
        self._news = "\n\n".join([*again.notes(), *self._take_forgotten()])

    async def take_news(self, unread: int) -> str:
        """What the model is told of `restore`, once: what was lost or changed, and the calls of a turn that was reset.

        A resumed run tells it what it was told before, whatever comes of the same code this time.

        Args:
            unread: The number of messages of the turn, by which it differs from a turn that was reset.
        """
        news, self._news = self._news, None
        if news is None:
            return ""
        request = {"messages": unread}
        told: str | None = await find_step("restored", request)
        if told is None:
            keep_step("restored", request, news, 0.0)
            return news
        if news not in ("", told):
            note(news)
        return told

    def _take_forgotten(self) -> list[str]:
        """A note on the calls of a turn that was reset."""
        calls, self._forgotten = [call for call in self._forgotten if call.has_effect], []
        if not calls:
            return []
        reset = "An earlier turn was interrupted; conversation and variables were restored to the state before it."
        return [f"{reset}\n{calls_made(calls)}"]

    async def close(self) -> None:
        """Stop the executor and the workbenches; before the next use the cells are run again."""
        self._to_restore = bool(self._cells or self._failed)
        self._is_closed = True  # An overlay begins without changes then.
        self._functions = self._offered = None
        self.forget_variables()
        try:
            await self._gate.close()
            await self._runner.close()
        finally:
            if (user := _users.get(self._executor)) and user() is self:
                del _users[self._executor]
            await self._workbenches.stop()
            if self._skills is not None:
                await self._skills.close()

    async def reset(self) -> None:
        """Return to the initial state; the executor was restarted."""
        self._cells, self._failed, self._to_restore = [], 0, False
        self.forget_variables()
        self._called, self._forgotten = [], []
        self.tool_search.found = []
        await self._workbenches.reset()

"""Running code while its model still writes it, statement by statement. Used by `CodeActAgent`."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import re
import uuid
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Final

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_core.models import CreateResult

from coderoom._util.tasks import aside, cancel_and_wait, retrieve_exception, run_uncancellable
from coderoom.agents.code_runner import CodeRunner
from coderoom.agents.selection import CodeFormat, Selection, select_from_reply
from coderoom.approval import belong_to
from coderoom.approval.base import call_in_thread
from coderoom.blocks import normalize_language
from coderoom.errors import CodeRoomError
from coderoom.executors import SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import (
    ExecutionResult,
    HostFunction,
    OnOutput,
    OutputChunk,
    combined,
    host_functions,
    named_file,
    while_a_person_decides,
)
from coderoom.sandbox.functions.function import Arguments
from coderoom.steps import cell

_NEXT: Final = "_next_statement"
_FOLLOW: Final = CodeBlock(
    code=f"__import__('coderoom_guest.statements', fromlist=['follow']).follow({_NEXT!r})", language="python"
)
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_LONGEST: Final = 100_000
_WHOLE: Final = ("__future__", "# /// script", "\r")
"""What code cannot be divided that has it."""
_MOST_TRIES: Final = 3
_ENDING_SECONDS: Final = 0.5
_INSIDE: Final = " \t\f\n#)]}"
_CONTINUING: Final = ("elif", "else", "except", "finally")


def check_settings(streams: bool, asks: bool) -> None:
    """As `check_eager`, without the executor."""
    if not streams:
        raise ValueError("eager=True needs model_client_stream=True: otherwise a reply arrives as a whole.")
    if asks:
        raise ValueError(
            "eager=True runs code before all of it is written: an approval and check_types cannot judge it."
        )


def check_eager(executor: CodeExecutor, streams: bool, asks: bool) -> None:
    """Refuse settings with which code cannot run before all of it is known.

    Raises:
        ValueError: It cannot; the message says why.
    """
    check_settings(streams, asks)
    config = executor.dump_component().config if isinstance(executor, SandboxCodeExecutor) else {}
    if config.get("state", "session") != "session" or not config or config.get("engine", "cpython") != "cpython":
        raise ValueError("eager=True needs a SandboxCodeExecutor(state='session') with engine='cpython'.")
    if config.get("policy", "open") != "open":
        raise ValueError("eager=True needs policy='open': another policy judges code as a whole before it runs.")


class Eager:
    """Runs the beginning of a reply's first block while the rest is written.

    A statement runs once the next one begins. What has run is taken back if it turns out to be no code to run, or other
    code. Calls of functions wait until the reply is complete, but for those that only read.

    Args:
        runner: What runs the code in the end.
        find_code: Finds the code to run in a text.
        code_format: How code is written.
        prepare: Called before the first statement.
    """

    def __init__(
        self,
        runner: CodeRunner,
        find_code: Callable[[str], Selection],
        code_format: CodeFormat,
        prepare: Callable[[CancellationToken], Awaitable[object]],
    ) -> None:
        self._runner = runner
        self._find_code = find_code
        self._in_tags = code_format == "execute"
        self._prepare = prepare
        self._text = ""
        self._is_over = False
        self._early: _Early | None = None
        self._token = CancellationToken()
        runner.early = self.run

    @property
    def has_begun(self) -> bool:
        """Whether code of the last reply has run or runs."""
        return self._early is not None

    async def functions(self, functions: Sequence[HostFunction]) -> list[HostFunction]:
        """The functions for a session, of which those wait that may have an effect."""
        (following,) = await host_functions([self._next_statement])
        return [*(self._waiting(each) for each in functions), replace(following, name=_NEXT, is_async=False)]

    async def reading(self, reply: Awaitable[CreateResult], token: CancellationToken) -> CreateResult:
        """Wait for a reply, whose pieces `read` gets meanwhile, and take back what is not the code that it has."""
        await self.take_back()
        self._text, self._is_over, self._token = "", False, token
        try:
            found = await reply
            if self._early is not None:
                text = found.content if isinstance(found.content, str) else ""
                blocks = (await aside(select_from_reply, text, self._find_code)).blocks
                if not (blocks and self._early.fits(blocks[0])):
                    await self.take_back()
        except BaseException:
            await self.take_back()
            raise
        return found

    async def read(self, text: str) -> None:
        """Read a piece of a reply, and run what is complete."""
        self._text += text
        if self._is_over or "\n" not in text:
            return
        if len(self._text) > _LONGEST:
            self._is_over = True
            return
        lines = self._text[: self._text.rfind("\n") + 1]
        whole = select_from_reply(lines, self._find_code).blocks
        ends = ["</execute>"] if self._in_tags else dict.fromkeys(_FENCE.findall(lines))
        ended = (select_from_reply(f"{lines}\n{end}\n", self._find_code).blocks for end in ends)
        blocks = whole or next(filter(None, ended), ())
        if not blocks or not blocks[0].code.strip():
            return
        block, sent = blocks[0], "" if self._early is None else self._early.sent
        if not _can_be_divided(block) or not block.code.startswith(sent):
            self._is_over = True
            return
        code = block.code if block.code.endswith("\n") else f"{block.code}\n"
        end = len(sent) + complete(code[len(sent) :])
        if end > len(sent) and self._early is None:
            await self._prepare(self._token)
            await self._runner.prepare(self._token)
            self._early = await _Early.begin(self._runner)
        if self._early is not None and (end > len(sent) or whole):
            self._is_over = bool(whole)
            self._early.send(block.code[len(sent) :] if whole else code[len(sent) : end], is_last=bool(whole))

    async def take_back(self) -> None:
        """End what runs, and go back to the state before it."""
        early, self._early, self._is_over = self._early, None, True
        if early is not None:
            await run_uncancellable(early.take_back())

    async def run(
        self, blocks: Sequence[CodeBlock], token: CancellationToken, on_output: OnOutput | None
    ) -> ExecutionResult:
        """Run the code of a reply, of which the beginning may run already."""
        early, run = self._early, self._runner.executor.run
        if early is None:
            return await run(blocks, token, on_output)
        try:
            result = await early.finish(blocks[0], token, on_output)
        finally:
            self._early = None
        if result is None:  # Together it is no code, or not known to be some: nothing of it may have run.
            await early.take_back()
            return await run(blocks, token, on_output)
        if result.outcome is Outcome.OK and len(blocks) > 1:
            return combined([result, await run(blocks[1:], token, on_output)])
        return result

    async def _next_statement(self, problem: str = "") -> dict[str, Any]:
        """Give the code that runs its next piece."""
        if (early := _running.get()) is None:
            raise RuntimeError("there is no further code")
        return await early.next(problem)

    def _waiting(self, function: HostFunction) -> HostFunction:
        """The function, whose calls wait until the code is known to be the reply's, unless they only read."""
        if function.effect is not None and function.effect.name == "read" and not function.asks:
            return function

        def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
            return Arguments((args, kwargs), {})

        async def call(arguments: Arguments) -> Any:
            if (early := _running.get()) is not None:
                belong_to(await early.selected())
            ready = function.check(*arguments.args)
            answer = await call_in_thread(function.run, ready) if function.in_thread else function.run(ready)
            return await answer if inspect.isawaitable(answer) else answer

        return replace(function, check=check, run=call, in_thread=False)


class _Early:
    """Code of a reply that runs already, and the state before it."""

    def __init__(self, runner: CodeRunner, mark: Any, is_own: bool) -> None:
        self.sent = ""
        self._runner, self._mark, self._is_own = runner, mark, is_own
        self._pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._is_whole = self._waits = self._is_given = self._has_called = False
        self._problem = ""
        self._code: asyncio.Future[Context] = asyncio.get_running_loop().create_future()
        self._unread: list[OutputChunk] = []
        self._on_output: OnOutput = self._unread.append
        running = runner.executor.run([_FOLLOW], CancellationToken(), lambda chunk: self._on_output(chunk))
        context = copy_context()  # Its calls until then belong to no code that may be run again.
        context.run(cell.set, uuid.uuid4().hex)
        context.run(_running.set, self)
        self._task = asyncio.create_task(running, context=context)
        self._task.add_done_callback(retrieve_exception)

    @classmethod
    async def begin(cls, runner: CodeRunner) -> _Early:
        mark = runner.mark
        return cls(runner, await runner.given.checkpoint() if mark is None else mark, mark is None)

    def send(self, code: str, *, is_last: bool) -> None:
        self.sent += code
        self._is_whole = is_last
        self._pieces.put_nowait({"code": code, "last": is_last})

    def fits(self, block: CodeBlock) -> bool:
        """Whether this is the code whose beginning runs."""
        if not _can_be_divided(block):
            return False
        return block.code == self.sent if self._is_whole else block.code.startswith(self.sent)

    async def next(self, problem: str) -> dict[str, Any]:
        if problem:
            self._problem = problem
            return {}
        if self._waits or self._is_given:  # Code that asks by itself would wait for ever, and no time limit runs.
            raise RuntimeError("there is no further code")
        self._waits = True
        try:
            if self._pieces.empty():
                async with while_a_person_decides():  # Nothing runs meanwhile, and no time.
                    piece = await self._pieces.get()
            else:
                piece = self._pieces.get_nowait()
            self._is_given = piece["last"]
            return piece
        finally:
            self._waits = False

    async def selected(self) -> Context:
        """Wait until it is known that the code is to run; return the context in which it does."""
        if not self._code.done():
            async with while_a_person_decides():
                await asyncio.wait((self._code,))
        code = self._code.result()
        self._has_called = True
        return code

    async def finish(
        self, block: CodeBlock, token: CancellationToken, on_output: OnOutput | None
    ) -> ExecutionResult | None:
        """Run the code to its end; `None` if all of it together is none, before any of its calls is made."""
        if not await aside(partial(_is_code, whole=True), block.code):
            return None
        if on_output is not None:
            self._on_output = on_output
            for chunk in self._unread:
                on_output(chunk)
        self._code.set_result(copy_context())
        if not self._is_whole:
            self.send(block.code[len(self.sent) :], is_last=True)
        token.link_future(self._task)
        try:
            await asyncio.wait((self._task,))
        finally:
            await cancel_and_wait(self._task)
            is_none = bool(self._problem) and not self._has_called  # Only the code says so: no call is made again.
            if self._is_own and not is_none:
                await run_uncancellable(self._runner.given.release(self._mark))
        if is_none:
            return None
        result = self._task.result()
        calls = tuple(each for each in result.calls if each.name != _NEXT)
        return replace(result, code=block.code, calls=calls)

    async def take_back(self) -> None:
        self._code.cancel()  # First of all: the code runs once more.
        if self._waits:  # So it ends without being interrupted.
            self.send("", is_last=True)
            await asyncio.wait((self._task,), timeout=_ENDING_SECONDS)
        await cancel_and_wait(self._task)
        with contextlib.suppress(CodeRoomError):  # The session is gone, and with it all that has run.
            await self._runner.given.rollback(self._mark)
            if self._is_own:
                await self._runner.given.release(self._mark)


_running: Final[ContextVar[_Early | None]] = ContextVar("coderoom_early", default=None)
"""The code of a reply whose calls are answered in this context."""


def complete(code: str) -> int:
    """Where code ends whose statements are complete and cannot change, whatever follows its lines."""
    end = len(code)
    for _ in range(_MOST_TRIES):
        begin = code.rfind("\n", 0, end - 1) + 1
        while begin > 0 and not _begins_statement(code, begin):
            begin = code.rfind("\n", 0, begin - 1) + 1
        if begin <= 0:
            return 0
        if _is_code(code[:begin]):
            return begin
        end = begin
    return 0


def _begins_statement(code: str, at: int) -> bool:
    return code[at] not in _INSIDE and not code.startswith(_CONTINUING, at)


def _is_code(code: str, *, whole: bool = False) -> bool:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | (0 if whole else ast.PyCF_ONLY_AST)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _can_be_divided(block: CodeBlock) -> bool:
    first = next(iter(block.code.lstrip("\n")), " ")
    return (
        normalize_language(block.language) == "python"
        and not first.isspace()
        and not named_file(block)
        and not any(each in block.code for each in _WHOLE)
    )

"""What every engine promises: `EngineConformance`, and `PythonEngineConformance` for one that runs Python.

    class TestSQLite(EngineConformance):
        arguments = {"engine": "sqlite"}
        language = "sql"
        ...

`docs/plugins.md` has a whole one.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Limits, OutputChunk, Sandbox, Session
from coderoom.testing.suites import Suite


class EngineConformance(Suite):
    """What an engine promises, whatever the language of its cells.

    Attributes:
        language: The language of the cells below.
        sets: One that sets a variable, a row or whatever it has to the number `{}`.
        reads: One whose value is that number. In a fresh state it fails.
        computes: One whose value is 42.
        malformed: One with a syntax error.
        fails: One that fails while it runs.
        endless: One that never ends.
        greedy: One that wants ever more memory.
    """

    language: ClassVar[str] = "python"
    sets: ClassVar[str] = "x = {}"
    reads: ClassVar[str] = "x"
    computes: ClassVar[str] = "6 * 7"
    malformed: ClassVar[str] = "x = 1\nif x\n    pass"
    fails: ClassVar[str] = "y = 2\n1 / 0"
    endless: ClassVar[str] = "while True: pass"
    greedy: ClassVar[str] = "x = []\nwhile True: x.append('a' * 10_000_000)"

    async def run(self, place: Sandbox | Session, code: str, **more: Any) -> ExecutionResult:
        """Run a cell in the language of the suite."""
        return await place.run(code, language=self.language, **more)

    async def test_a_run_has_a_value(self, sandbox: Sandbox) -> None:
        result = await self.run(sandbox, self.computes)
        assert (result.outcome, result.exit_code, result.success) == (Outcome.OK, 0, True)
        assert (result.value, result.error) == (42, None)
        assert result.duration > 0

    async def test_each_run_starts_fresh(self, sandbox: Sandbox) -> None:
        assert (await self.run(sandbox, self.sets.format(1))).success
        result = await self.run(sandbox, self.reads)
        assert result.outcome is Outcome.ERROR
        assert result.error is not None

    async def test_a_session_keeps_its_state_over_a_failing_cell(self, session: Session) -> None:
        await self.run(session, self.sets.format(40))
        failed = await self.run(session, self.fails)
        assert failed.outcome is Outcome.ERROR
        assert failed.exit_code != 0
        assert not failed.state_lost
        assert (await self.run(session, self.reads)).value == 40

    async def test_sessions_do_not_see_each_other(self, sandbox: Sandbox) -> None:
        async with sandbox.session() as one, sandbox.session() as other:
            await self.run(one, self.sets.format(1))
            assert (await self.run(other, self.reads)).outcome is Outcome.ERROR

    async def test_a_syntax_error_is_the_codes_failure(self, sandbox: Sandbox) -> None:
        result = await self.run(sandbox, self.malformed)
        assert result.outcome is Outcome.ERROR
        assert result.error is not None
        assert result.error.message

    async def test_a_deadline_ends_the_cell(self, session: Session) -> None:
        result = await self.run(session, self.endless, timeout=0.5)
        assert (result.outcome, result.exit_code, result.limit) == (Outcome.TIMEOUT, 124, "wall")
        assert result.error is not None
        assert "0.5 seconds" in result.error.message
        assert (await self.run(session, self.computes)).value == 42

    async def test_what_a_deadline_costs_is_said(self, session: Session) -> None:
        await self.run(session, self.sets.format(1))
        result = await self.run(session, self.endless, timeout=0.3)
        assert result.error is not None
        if result.state_lost:
            assert "variables are gone" in result.error.message
            assert not (await self.run(session, self.reads)).success
        else:
            assert (await self.run(session, self.reads)).value == 1

    async def test_a_cell_can_be_cancelled(self, session: Session) -> None:
        task = asyncio.ensure_future(self.run(session, self.endless))
        await asyncio.sleep(0.3)
        await session.cancel()
        result = await task
        assert (result.outcome, result.exit_code) == (Outcome.CANCELLED, 125)

    async def test_a_cancelled_task_ends_the_code(self, session: Session) -> None:
        task = asyncio.ensure_future(self.run(session, self.endless))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await self.run(session, self.computes)).value == 42

    async def test_too_much_memory(self) -> None:
        async with self.make(limits=Limits(memory_bytes=256 * 1024 * 1024)) as sandbox:
            result = await self.run(sandbox, self.greedy)
            assert result.outcome is Outcome.MEMORY, result
            assert (result.exit_code, result.limit) == (137, "memory")
            assert (await self.run(sandbox, self.computes)).value == 42

    async def test_checkpoints_nest_and_last(self, session: Session) -> None:
        await self.run(session, self.sets.format(1))
        one = await session.checkpoint()
        await self.run(session, self.sets.format(2))
        two = await session.checkpoint()
        await self.run(session, self.sets.format(3))
        await session.rollback(two)
        assert (await self.run(session, self.reads)).value == 2
        await self.run(session, self.sets.format(4))
        await session.rollback(two)
        assert (await self.run(session, self.reads)).value == 2
        await session.rollback(one)
        assert (await self.run(session, self.reads)).value == 1
        with pytest.raises(RequestError, match="checkpoint is gone"):
            await session.rollback(two)
        await session.rollback(one)
        assert (await self.run(session, self.reads)).value == 1
        await session.release(one)
        await session.restart()
        assert not (await self.run(session, self.reads)).success

    async def test_a_checkpoint_outlives_a_deadline(self, session: Session) -> None:
        await self.run(session, self.sets.format(1))
        mark = await session.checkpoint()
        await self.run(session, self.sets.format(2))
        await self.run(session, self.endless, timeout=0.3)
        await session.rollback(mark)
        assert (await self.run(session, self.reads)).value == 1

    async def test_many_at_once(self, sandbox: Sandbox) -> None:
        results = await asyncio.gather(*(self.run(sandbox, self.computes) for _ in range(40)))
        assert [result.value for result in results] == [42] * 40

    async def test_a_language_that_nobody_runs(self, sandbox: Sandbox) -> None:
        with pytest.raises(RequestError, match="'cobol'"):
            await sandbox.run("DISPLAY 'HI'", language="cobol")

    async def test_starting_by_itself_and_closing_twice(self) -> None:
        sandbox = self.make()
        assert (await self.run(sandbox, self.computes)).value == 42
        await sandbox.close()
        await sandbox.close()

    async def test_a_closed_session_says_so(self, sandbox: Sandbox) -> None:
        session = sandbox.session()
        await session.close()
        with pytest.raises(RequestError, match="session is closed"):
            await self.run(session, self.computes)


VALUES: dict[str, object] = {
    "None": None,
    "True": True,
    "1.5": 1.5,
    "'ä\\ud800'[0]": "ä",
    "[1, 'a', None, {'b': [2.5]}]": [1, "a", None, {"b": [2.5]}],
    "{'a': {}}": {"a": {}},
    "x = 3": None,
    "{1, 2}": {1, 2},
    "{1: 2}": {1: 2},
    "b'x'": b"x",
    "range(3)": "range(0, 3)",
}


class PythonEngineConformance(EngineConformance):
    """What an engine promises whose cells are Python.

    Attributes:
        has_input: Whether cells can have a standard input; otherwise the engine `lacks` "stdin".
    """

    has_input: ClassVar[bool] = True

    async def test_a_run_prints_and_has_a_value(self, sandbox: Sandbox) -> None:
        result = await sandbox.run("print(sum(range(10)))\n6 * 7")
        assert (result.stdout, result.stderr, result.output) == ("45\n", "", "45\n")
        assert (result.value, result.value_repr, result.result, result.success) == (42, "42", 42, True)

    async def test_cells_of_a_session_run_one_after_the_other(self, session: Session) -> None:
        await session.run("numbers = []")
        code = "numbers.append({0})\nfor i in range(20_000): pass\nnumbers.append({0})"
        await asyncio.gather(*(session.run(code.format(number)) for number in range(5)))
        assert (await session.run("numbers")).value == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]

    async def test_functions_and_errors_have_their_names(self, session: Session) -> None:
        await session.run("x = 40\ndef add(a, b):\n    return a + b")
        await session.run("y = 2\nx / 0")
        assert (await session.run("add(x, y)")).value == 42
        result = await session.run("none_such")
        assert result.error is not None
        assert result.error.type == "NameError"

    async def test_values_come_back_as_data_or_as_repr(self, sandbox: Sandbox) -> None:
        for code, value in VALUES.items():
            result = await sandbox.run(code)
            assert result.value == value, code
            assert type(result.value) is type(value), code

    async def test_a_traceback_shows_the_lines_of_the_code_only(self, session: Session) -> None:
        await session.run("def half(x):\n    return x / 0")
        result = await session.run("y = 1\nhalf(y)")
        assert result.error is not None
        assert (result.error.type, result.error.line) == ("ZeroDivisionError", 2)
        assert "half(y)" in result.error.traceback
        assert "return x / 0" in result.error.traceback
        assert "coderoom_guest" not in result.error.traceback
        assert result.error.message in result.output

    async def test_a_syntax_error_has_its_line(self, sandbox: Sandbox) -> None:
        result = await sandbox.run(self.malformed)
        assert result.error is not None
        assert (result.error.type, result.error.line) == ("SyntaxError", 2)

    async def test_await_at_top_level(self, sandbox: Sandbox) -> None:
        code = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3\nawait f()"
        assert (await sandbox.run(code)).value == 3

    async def test_input_has_a_clear_error_at_once(self, sandbox: Sandbox) -> None:
        result = await sandbox.run("input('name? ')")
        assert result.outcome is Outcome.ERROR
        assert result.error is not None
        assert "input()" in result.error.message

    async def test_standard_input_is_what_is_given(self, session: Session) -> None:
        code = "import subprocess, sys\nprint(input())\nprint(sys.stdin.read())\nprint('e', file=sys.stderr)"
        if not self.has_input:
            with pytest.raises(RequestError, match="no standard input"):
                await session.run(code, stdin="1")
            return
        result = await session.run(f"{code}\nsubprocess.run(['cat'])", stdin="1\n\u00e4\n")
        assert (result.stdout, result.stderr) == ("1\n\u00e4\n\n", "e\n")
        result = await session.run("import subprocess\nsubprocess.run(['cat'])\nprint(open(0).read())", stdin=b"2")
        assert sorted(result.stdout) == ["\n", "2"]
        assert (await session.run("input()")).error is not None

    async def test_output_arrives_while_the_cell_runs(self, session: Session) -> None:
        seen: list[OutputChunk | ExecutionResult] = []
        first_at = last_at = 0.0
        loop = asyncio.get_running_loop()
        async for item in session.stream("print('a')\nfor i in range(6_000_000): pass\nprint('b')"):
            seen.append(item)
            if len(seen) == 1:
                first_at = loop.time()
            last_at = loop.time()
        assert isinstance(seen[-1], ExecutionResult)
        assert "".join(item.text for item in seen if isinstance(item, OutputChunk)) == "a\nb\n"
        assert last_at - first_at > seen[-1].duration / 3

    async def test_output_is_bounded_and_counted(self) -> None:
        async with self.make(limits=Limits(output_bytes=4096)) as sandbox:
            result = await sandbox.run("for i in range(20_000):\n    print(i)\nprint('end')")
        assert result.outcome is Outcome.OK
        assert result.truncated
        assert result.output_size == sum(len(f"{i}\n") for i in range(20_000)) + 4
        assert len(result.output) < 4096 + 200
        assert result.output.startswith("0\n1\n2\n")
        assert result.output.endswith("19999\nend\n")
        assert "left out" in result.output

    async def test_a_deadline_keeps_the_output(self, session: Session) -> None:
        result = await session.run("print('before')\nwhile True: pass", timeout=0.5)
        assert (result.outcome, result.stdout) == (Outcome.TIMEOUT, "before\n")

    async def test_cancelling_keeps_the_output(self, session: Session) -> None:
        task = asyncio.ensure_future(session.run("print('before')\nwhile True: pass"))
        await asyncio.sleep(0.3)
        await session.cancel()
        result = await task
        assert (result.outcome, result.stdout) == (Outcome.CANCELLED, "before\n")

    async def test_an_error_in_the_function_that_takes_output_is_the_callers(self, session: Session) -> None:
        def take(chunk: OutputChunk) -> None:
            raise BrokenPipeError(chunk.text)

        with pytest.raises(BrokenPipeError, match="x"):
            await session.run("x = 1\nwhile True: print('x')", on_output=take)
        assert (await session.run("2")).value == 2

    async def test_a_left_stream_ends_the_code(self, session: Session) -> None:
        async for item in session.stream("while True: print('x')"):
            assert isinstance(item, OutputChunk)
            break
        assert (await session.run("1 + 1")).value == 2

    async def test_a_stream_that_is_read_late_has_all_of_it(self, session: Session) -> None:
        text = ""
        async for item in session.stream("for number in range(3000): print(number, flush=True)", timeout=30):
            if isinstance(item, OutputChunk):
                if not text:
                    await asyncio.sleep(0.2)  # The code fills what is between, and waits.
                text += item.text
        assert text.split() == [str(number) for number in range(3000)]

    async def test_deep_recursion_is_an_error(self, sandbox: Sandbox) -> None:
        result = await sandbox.run("def f(n):\n    return f(n + 1)\nf(0)")
        assert result.outcome is Outcome.ERROR
        assert result.error is not None
        assert result.error.type == "RecursionError"

    async def test_rolling_back_undoes_everything_since(self, session: Session) -> None:
        await session.run("x = 40\ny = [1]")
        mark = await session.checkpoint()
        await session.run("x = None\ny.append(2)\nz = 1")
        await session.rollback(mark)
        result = await session.run(
            "try:\n    z\n    seen = True\nexcept NameError:\n    seen = False\n[x + 2, y, seen]"
        )
        assert result.value == [42, [1], False], result

    async def test_many_at_once_do_not_mix(self, sandbox: Sandbox) -> None:
        results = await asyncio.gather(*(sandbox.run(f"print({i})\n{i} * 2") for i in range(40)))
        assert [result.value for result in results] == [2 * i for i in range(40)]
        assert [result.stdout for result in results] == [f"{i}\n" for i in range(40)]

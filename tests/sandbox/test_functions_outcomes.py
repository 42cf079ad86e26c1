"""What comes of calls to functions of the host: exceptions, the log, where they run, and what they leave behind."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import CallRecorder, Limits, Sandbox, host_functions

from .offered import add, echo, later, run, value_of


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(limits=Limits(wall_seconds=20, value_bytes=100_000)) as sandbox:
        yield sandbox


class BrokenError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class OwnError(LookupError):
    pass


class Ending(BaseException):
    pass


ERRORS: list[tuple[BaseException, str, str]] = [
    (ValueError("no"), "ValueError", "no"),
    (KeyError("k"), "KeyError", "'k'"),
    (ZeroDivisionError(), "ZeroDivisionError", ""),
    (OwnError("x"), "LookupError", "OwnError: x"),
    (FileNotFoundError(2, "No such file", "/x/y"), "FileNotFoundError", "[Errno 2] No such file: '/x/y'"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "HostFunctionError", "UnicodeDecodeError: 'utf-8' codec can't"),
    (ExceptionGroup("many", [ValueError("a")]), "HostFunctionError", "ExceptionGroup: many (1 sub-exception)"),
    (StopIteration(3), "RuntimeError", "StopIteration"),
    (StopAsyncIteration(), "RuntimeError", "StopAsyncIteration"),
    (SystemExit(3), "RuntimeError", "SystemExit: 3"),
    (Ending("over"), "RuntimeError", "Ending: over"),
    (asyncio.CancelledError("stop"), "RuntimeError", "CancelledError: stop"),
    (BrokenError(), "HostFunctionError", "BrokenError: its text could not be made"),
    (ValueError(object, b"x"), "ValueError", "(<class 'object'>, b'x')"),
    (ValueError("x" * 5000), "ValueError", "x" * 2000 + "... (5,000 characters)"),
    (ValueError("\ud800"), "ValueError", "\ud800"),
    (TimeoutError("own"), "TimeoutError", "own"),
]


class TestExceptions:
    @pytest.mark.parametrize(("error", "kind", "text"), ERRORS, ids=[type(each[0]).__name__ for each in ERRORS])
    async def test_they_are_raised_there(self, sandbox: Sandbox, error: BaseException, kind: str, text: str) -> None:
        def fail() -> None:
            raise error

        async def fail_later() -> None:
            raise error

        code = (
            "found = []\nfor call in (fail, fail_later):\n    try:\n        value = call()\n"
            "        await value\n    except Exception as error:\n"
            "        found.append([type(error).__name__, ascii(str(error))])\nfound"
        )
        result = await run(sandbox, code, fail, fail_later)
        assert result.success, result.output
        expected = ascii(text)[1:-1]
        for found_kind, found_text in result.value:
            assert found_kind == kind
            assert expected in found_text
        assert [call.outcome for call in result.calls] == [Outcome.ERROR] * 2

    @pytest.mark.parametrize("policy", ["open", "restricted"])
    async def test_each_can_be_caught_by_its_name(self, policy: Literal["open", "restricted"]) -> None:
        def fail() -> None:
            raise BrokenError

        code = "found = []\nfor kind in (HostFunctionError, RuntimeError):\n    try: fail()\n"
        code += "    except kind as error: found.append(type(error).__name__)\nfound"
        async with Sandbox(policy=policy) as sandbox:
            assert await value_of(sandbox, code, fail) == ["HostFunctionError"] * 2

    @pytest.mark.parametrize(("error", "kind", "text"), ERRORS, ids=[type(each[0]).__name__ for each in ERRORS])
    async def test_a_recorded_one_is_the_same(
        self, sandbox: Sandbox, error: BaseException, kind: str, text: str
    ) -> None:
        def fail() -> None:
            raise error

        async def fail_later() -> None:
            raise error

        code = "found = []\nfor call in (fail, fail_later):\n    try: await call()\n"
        code += "    except Exception as e: found.append([type(e).__name__, ascii(str(e)), ascii(e.args)])\n"
        recorder = CallRecorder()
        functions = [recorder.wrap(each) for each in await host_functions([fail, fail_later])]
        async with sandbox.session(functions=functions) as session:
            live = (await session.run(code + "found")).value
            assert [each[0] for each in live] == [kind] * 2
            recorder.answer_from(recorder.take())
            assert (await session.run(code + "found")).value == live

    async def test_uncaught_ones_fail_the_cell_and_show_its_lines_only(self, sandbox: Sandbox) -> None:
        def fail(what: str) -> None:
            raise PermissionError(f"no {what} for you")

        result = await run(sandbox, "x = 1\nfail('cake')", fail)
        assert result.error is not None
        assert (result.error.type, result.error.message, result.error.line) == ("PermissionError", "no cake for you", 2)
        assert "fail('cake')" in result.stderr
        assert "coderoom_guest" not in result.stderr

    async def test_an_interrupt_in_a_thread_stops_nobody(self, sandbox: Sandbox) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        result = await run(sandbox, "interrupt()", interrupt)
        assert result.error is not None
        assert (result.error.type, result.error.message) == ("RuntimeError", "KeyboardInterrupt")


class TestTheLog:
    async def test_each_call_is_told(self, sandbox: Sandbox) -> None:
        def fail() -> None:
            raise ValueError("no")

        code = (
            "add(1, times=2)\nfor call in (fail, lambda: add('x')):\n    try: call()\n    except Exception: pass\n"
            "await later('a')"
        )
        async with sandbox.session(functions=[add, fail, later]) as session:
            result = await session.run(code)
            assert [(call.name, dict(call.arguments), call.outcome.value) for call in result.calls] == [
                ("add", {"a": 1, "times": 2}, "ok"),
                ("fail", {}, "error"),
                ("add", {"a": "x"}, "rejected"),
                ("later", {"text": "a"}, "ok"),
            ]
            assert result.calls[1].error == "ValueError: no"
            assert all(call.duration >= 0 for call in result.calls)
            assert str(result.calls[0]) == "add(a=1, times=2): ok"
            assert (await session.run("1")).calls == ()

    async def test_long_arguments_are_cut_and_those_of_before_the_call_are_told(self, sandbox: Sandbox) -> None:
        def empty(items: list[Any], text: str) -> None:
            items.clear()

        code = "empty([1, [2]], 'x' * 5000)\nempty(list(range(9000)), 'short')\nempty([[[[]]]] * 3, '')"
        calls = (await run(sandbox, code, empty)).calls
        assert calls[0].arguments["items"] == [1, [2]]
        assert calls[0].arguments["text"].strip("x") == "... (5,000 characters)"
        assert len(calls[0].arguments["text"]) < 2030
        assert calls[1].arguments["items"].startswith("[0, 1, 2, 3")
        assert len(calls[1].arguments["items"]) < 2010
        assert calls[2].arguments == {"items": [[[[]]]] * 3, "text": ""}

    async def test_programs_of_another_language_have_no_functions(self, sandbox: Sandbox) -> None:
        result = await run(sandbox, "1", add)
        assert result.calls == ()
        async with sandbox.session(functions=[add]) as session:
            assert (await session.run("echo hello", language="sh")).calls == ()


class TestWhereItRuns:
    async def test_plain_ones_in_threads_and_async_ones_in_the_event_loop(self, sandbox: Sandbox) -> None:
        seen: list[Any] = []

        def plain() -> int:
            seen.append(threading.current_thread())
            return os.getpid()

        async def coroutine() -> int:
            seen.append(asyncio.get_running_loop())
            return os.getpid()

        assert await value_of(sandbox, "[plain(), await coroutine()]", plain, coroutine) == [os.getpid()] * 2
        assert seen[0] is not threading.main_thread()
        assert seen[0].daemon  # One that never returns does not keep the host from ending.
        assert seen[1] is asyncio.get_running_loop()

    @pytest.mark.parametrize("code", ["x = later('a')\nprint(x)", "print(later('a'))", "later('a')\nprint('sent')"])
    async def test_one_that_is_not_awaited_is_an_error(self, sandbox: Sandbox, code: str) -> None:
        async with sandbox.session(functions=[later]) as session:
            result = await session.run(code)
            assert result.outcome is Outcome.ERROR
            assert "later() was called without `await`, so it did not run" in result.stderr
            assert (await session.run("import asyncio\ny = await asyncio.gather(later('b'), later('c'))\ny")).value == [
                "b!",
                "c!",
            ]

    async def test_under_the_restricted_policy(self) -> None:
        async with Sandbox(policy="restricted") as sandbox, sandbox.session(functions=[add, later]) as session:
            result = await session.run("result = [add(1), await later('a')]")
            assert result.value == [3.0, "a!"], result.output
            assert (await session.run("import os")).outcome is Outcome.REJECTED


async def test_a_thousand_calls_leave_nothing_behind(sandbox: Sandbox) -> None:
    rise = (
        "import gc, resource\nfor i in range(200): echo([i, 'x' * 1000])\ngc.collect()\n"
        "def pages():\n    with open('/proc/self/statm') as file: return int(file.read().split()[1])\n"
        "before, objects = pages(), len(gc.get_objects())\n"
        "for i in range(1000): echo([i, 'x' * 1000])\n"
        "[pages() - before, len(gc.get_objects()) - objects]"
    )
    async with sandbox.session(functions=[echo]) as session:
        result = await session.run(rise)
        assert result.success, result.output
        assert len(result.calls) == 1200
        grown, objects = result.value
        assert grown < 128  # Pages of 4 KiB.
        assert objects < 100
        assert threads() == []


def threads() -> list[str]:
    for _ in range(200):
        found = [thread.name for thread in threading.enumerate() if thread.name.startswith("coderoom-call")]
        if not found:
            return []
        threading.Event().wait(0.01)
    return found

"""`SyncSandbox`: a sandbox without `async`, here and at a server."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Sandbox, SyncSandbox
from tests.support.commands import environment
from tests.support.sandbox_server import shared_server


@pytest.fixture(scope="module", params=["here", "at a server"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[SyncSandbox]:
    with SyncSandbox(**({} if request.param == "here" else shared_server())) as sandbox:
        yield sandbox


def test_runs_sessions_and_functions(sandbox: SyncSandbox) -> None:
    here: list[str] = []

    def note(text: str) -> int:
        here.append(text)
        return len(text)

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    assert sandbox.run("print(input())", stdin="a\n").stdout == "a\n"
    with sandbox.session([note, double]) as session:
        assert session.run("x = note('four') + await double(4)\nx").value == 12
        mark = session.checkpoint()
        session.run("del x")
        session.rollback(mark)
        session.release(mark)
        assert session.run("x").value == 12
        session.restart()
        assert session.run("x").outcome is Outcome.ERROR
    assert here == ["four"]


def test_a_stream_and_one_that_is_left(sandbox: SyncSandbox) -> None:
    *pieces, result = sandbox.stream("print('a', flush=True)\nprint('b')")
    assert isinstance(result, ExecutionResult)
    assert "".join(each.text for each in pieces if not isinstance(each, ExecutionResult)) == "a\nb\n"
    with sandbox.session() as session:
        for _ in session.stream("while True: print('x')"):
            break
        assert session.run("2").value == 2


def test_another_thread_cancels(sandbox: SyncSandbox) -> None:
    with sandbox.session() as session:
        begun = threading.Event()

        def cancel() -> None:
            begun.wait(20)
            session.cancel()

        cancelling = threading.Thread(target=cancel)
        cancelling.start()
        result = session.run("print('begun', flush=True)\nwhile True: pass", on_output=lambda _: begun.set())
        cancelling.join()
        assert (result.outcome, result.stdout) == (Outcome.CANCELLED, "begun\n")


def test_what_it_takes_and_that_it_is_closed() -> None:
    sandbox = SyncSandbox(Sandbox("none"))
    assert sandbox.run("1 + 1").value == 2
    sandbox.close()
    sandbox.close()
    with pytest.raises(RequestError, match="closed"):
        sandbox.run("1")
    with pytest.raises(RequestError, match="not both"):
        SyncSandbox(Sandbox("none"), policy="restricted")
    with pytest.raises(RequestError, match="the server has the wall"):
        SyncSandbox("none", url="http://127.0.0.1:9")


def test_one_that_nobody_closes_ends_with_its_object_and_with_the_program() -> None:
    before = threading.active_count()
    sandbox = SyncSandbox("none")
    sandbox.run("1")
    del sandbox
    gc.collect()
    assert threading.active_count() <= before
    code = "from coderoom.sandbox import SyncSandbox\nx = SyncSandbox('none')\nprint(x.run('6 * 7').value)"
    done = subprocess.run([sys.executable, "-c", code], env=environment({}), capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("42\n", "", 0)


def test_functions_that_would_wait_for_themselves(sandbox: SyncSandbox) -> None:
    async def again() -> object:
        return sandbox.run("1").value

    with sandbox.session([again]) as session:
        result = session.run("await again()")
        assert result.error is not None
        assert "wait for itself" in result.error.message

"""What all tools for agents share; the frameworks are not needed for it."""

from __future__ import annotations

import asyncio
import importlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.integrations.tool import CodeSession, describe_tool


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("agent_framework", "agent-framework"),
        ("deepagents", "deepagents"),
        ("inspect_ai", "inspect"),
        ("langchain", "langchain"),
        ("llama_index", "llama-index"),
        ("nemo_gym", "nemo-gym"),
        ("openai_agents", "openai-agents"),
        ("openai_sandbox", "openai-agents"),
        ("openenv", "openenv"),
        ("pydantic_ai", "pydantic-ai"),
        ("smolagents", "smolagents"),
        ("verifiers", "verifiers"),
    ],
)
def test_missing_framework_is_named_with_its_extra(module: str, extra: str) -> None:
    with pytest.raises(MissingDependencyError, match=rf"is not installed: pip install 'coderoom\[{extra}\]'"):
        importlib.import_module(f"coderoom.integrations.{module}")


def test_a_session_that_nobody_closes_ends_with_the_process() -> None:
    code = "from coderoom.integrations.tool import CodeSession\ns = CodeSession()\nprint(s.run_blocking('6 * 7').value)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


def test_text_for_a_model() -> None:
    with CodeSession(limits={"wall_seconds": 1}) as session:

        def text(code: str) -> str:
            return session.describe(session.run_blocking(code))

        assert text("x = 1") == "(no output)"
        assert text("print('hello'); x + 1") == "hello\n2"
        assert text("[{'n': n, 'square': n * n} for n in range(500)]").startswith("list of dicts, 500 rows")
        assert text("open('made.txt', 'w').write('abc')") == "3\n[files: made.txt]"
        assert text("1 / 0").splitlines()[-2:] == [
            "ZeroDivisionError: division by zero",
            "[outcome: error, exit code 1]",
        ]
        assert text("import sys; print('half'); sys.exit(3)") == "half\n[outcome: error, exit code 3]"
        assert text("while True: pass").splitlines()[-2:] == [
            "The code was stopped after 1 seconds. Variables that were set before are still there.",
            "[outcome: timeout, exit code 124]",
        ]
        assert text("x") == "1"


def test_a_model_learns_which_hosts_its_code_reaches() -> None:
    told = describe_tool({"network": ["a.example.org"], "credentials": {"b.example.org": {"value": "secret"}}})
    assert "these hosts and no others: a.example.org, b.example.org." in told
    assert "secret" not in told
    assert "There is no network." in describe_tool({"network": "observe"})


def test_long_output_is_bounded() -> None:
    with CodeSession(limits={"wall_seconds": 10}) as session:
        text = session.describe(session.run_blocking("print('begin'); print('x' * 10**6); print('end')"))
    assert text.startswith("begin\n")
    assert text.endswith("\nend")
    assert "characters left out" in text
    assert len(text) < 40_000


async def test_session_is_used_from_several_loops_and_threads() -> None:
    session = CodeSession()
    await session.run("x = 1")
    assert (await asyncio.to_thread(session.run_blocking, "x")).value == 1
    assert (await asyncio.to_thread(lambda: asyncio.run(session.run("x + 1")))).value == 2
    await asyncio.to_thread(session.close)
    session.close()
    with pytest.raises(RequestError, match="closed"):
        await session.run("x")


async def test_cancelled_caller_ends_the_cell() -> None:
    with CodeSession() as session:
        await session.run("import time\nx = 1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.run("time.sleep(1000)"), 0.2)
        assert (await session.run("x")).value == 1


def test_interrupted_caller_ends_the_cell(request: pytest.FixtureRequest) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell starts jobs without a handler.
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with CodeSession() as session:
        session.run_blocking("import time\nx = 1")
        threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            session.run_blocking("time.sleep(1000)")
        assert session.run_blocking("x").value == 1


async def test_closing_ends_a_cell_that_runs() -> None:
    session = CodeSession()
    await session.run("import time")  # It has started.
    cell = asyncio.ensure_future(session.run("print('begin')\ntime.sleep(1000)"))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(session.close)
    result = await cell
    assert (result.outcome, result.stdout) == ("cancelled", "begin\n")


def test_session_that_nobody_closes_leaves_nothing() -> None:
    before = {thread.ident for thread in threading.enumerate()}
    session = CodeSession()
    session.run_blocking("1")
    worker = session._sandbox
    del session
    for _ in range(100):
        if {thread.ident for thread in threading.enumerate() if thread.name == "coderoom-session"} <= before:
            break
        time.sleep(0.05)
    assert worker._closed


async def test_a_conversation_whose_code_runs_keeps_its_session() -> None:
    with CodeSession(most=2) as session:
        await session.run("x = 1", "first")
        running = asyncio.ensure_future(session.run("import time; time.sleep(0.3); x", "first"))
        await asyncio.sleep(0)
        for other in ("second", "third", "fourth"):
            await session.run("x = 2", other)
        assert (await running).value == 1
        assert (await session.run("x", "second")).error is not None

"""OpenEnv's own server and client: episodes, clients beside each other, cheats, and a sandbox that breaks."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from openenv import GenericEnvClient

from coderoom.integrations.openenv import CodeAction, CodeEnvironment, code_app
from coderoom.integrations.rewards import Rewards
from coderoom.integrations.tool import CodeSession
from tests.integrations.inside.processes import descendants, kill

# Of uvicorn with the newest websockets.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
TESTS = ["assert twice(2) == 4"]
EQUAL = "class Any(int):\n    def __eq__(self, _):\n        return True\n"


@contextlib.contextmanager
def served(**options: Any) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = code_app(**options)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()
        for each in app.state.coderoom:
            each.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(limits={"wall_seconds": 20}) as url:
        yield url


async def test_clients_have_sessions_of_their_own(url: str) -> None:
    async with GenericEnvClient(url) as one, GenericEnvClient(url) as two:
        await one.reset(episode_id="same")
        await two.reset(episode_id="same")
        await one.step({"code": "x = 1"})
        assert (await one.step({"code": "x"})).observation["value"] == "1"
        assert "NameError" in (await two.step({"code": "x"})).observation["stderr"]
        assert (await one.state())["step_count"] == 2
        await one.reset()
        failed = (await one.step({"code": "x"})).observation
        assert (failed["exit_code"], failed["outcome"]) == (1, "error")


@pytest.mark.parametrize(
    ("code", "reward"),
    [
        ("def twice(n): return 2 * n", 1.0),
        ("def twice(n): return n", 0.0),
        (f"{EQUAL}def twice(n): return Any()", 0.0),
        ("import os\nos._exit(0)", 0.0),
    ],
)
async def test_answers_are_judged(url: str, code: str, reward: float) -> None:
    async with GenericEnvClient(url) as client:
        await client.reset(tests=TESTS)
        assert "twice(2)" not in str(await client.state())
        result = await client.step({"code": code, "submit": True})
        assert (result.reward, result.done) == (reward, True)


async def test_episode_without_tests_has_no_answer(url: str) -> None:
    async with GenericEnvClient(url) as client:
        await client.reset()
        with pytest.raises(RuntimeError, match="no tests"):
            await client.step({"code": "x = 1", "submit": True})


def test_without_a_server() -> None:
    with CodeSession() as sessions, Rewards() as rewards:
        environment = CodeEnvironment(sessions, rewards)
        environment.reset(tests=TESTS)
        assert environment.step(CodeAction(code="print(1)")).stdout == "1\n"
        assert environment.step(CodeAction(code="def twice(n): return n + n", submit=True)).reward == 1.0
        environment.close()


async def test_broken_sandbox_is_an_error_and_no_reward() -> None:
    before = descendants()
    with served() as url:
        async with GenericEnvClient(url) as client:
            await client.reset()
            await client.step({"code": "x = 1"})
            kill(descendants() - before)
            with pytest.raises(RuntimeError):
                await client.step({"code": "x"})

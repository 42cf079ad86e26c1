"""Hostile text does not stop the event loop: others of its callers wait for 50 ms at most."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import PIL.Image
import pytest
from autogen_agentchat.messages import MultiModalMessage
from autogen_core import Image
from autogen_core.models import ChatCompletionClient

from coderoom.agents import CodeExecutorAgent
from coderoom.configs import ReplayModel, make_model
from coderoom.executors import SandboxCodeExecutor
from coderoom.models.watching import watch_client
from coderoom.runs import Journal
from coderoom.runs.run_log import RunLog
from coderoom.sandbox import Limits, Sandbox
from coderoom.steps import observing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LONGEST = 0.05
SIZE = 10_000_000


async def longest_pause(work: Awaitable[object]) -> float:
    """How long the event loop was stopped at most, while something was done; in time of this process's processor.

    So a machine that is busy with other processes changes nothing.
    """
    task, longest, last = asyncio.ensure_future(work), 0.0, time.process_time()
    while not task.done():
        await asyncio.sleep(0.001)
        now = time.process_time()
        longest, last = max(longest, now - last), now
    task.result()
    return longest


async def check(work: Callable[[], Awaitable[object]]) -> None:
    pauses: list[float] = []
    while len(pauses) < 3 and min(pauses, default=1.0) > LONGEST:
        pauses.append(await longest_pause(work()))
    assert min(pauses) <= LONGEST, pauses


def python(code: str) -> list[str]:
    return [f"```python\n{code}\n```", "Done."]


@pytest.mark.parametrize(
    "replies",
    [
        *(python(f"print({text!r} * {SIZE // len(text)})\n1 / 0") for text in ("-eyJaaaaaaaaaa", "é://a:", "1", "sk-")),
        python("for n in range(3): open(f'{n}', 'w').write(f'{n}' + '-eyJaaaaaaaaaa' * 200_000)"),
        python("open('large', 'w').truncate(100_000_000)"),
        *([text * (SIZE // len(text)), "Done.", "Done."] for text in ("```python\nx\n", "> - `a` <execute> ", "${A}")),
        [f"```python\n'''{chr(13) * 900_000}'''\n```", "Done.", "Done."],
        *([text * (999_999 // len(text)), "Done.", "Done."] for text in ("<think>\n", "a<b> `c` ", "- a\n", "> a\n\n")),
        *(["<execute>x</execute>" * count, "Done.", "Done."] for count in (4_999, 49_999)),
        *([text * (499_999 // len(text)), "Done.", "Done."] for text in ("~~~\n", "\ud800")),
    ],
    ids=[
        *("tokens", "addresses", "digits", "keys", "files", "large-file", "fences", "tags", "variables", "line-ends"),
        *("thoughts", "html", "lists", "quotes", "tags-read", "tags-not-read", "unlabelled", "surrogates"),
    ],
)
async def test_a_team_with_a_journal(tmp_path: Path, replies: list[str]) -> None:
    await check_team(tmp_path, replies, "Go.")


async def test_a_picture(tmp_path: Path) -> None:
    picture = Image(PIL.Image.frombytes("RGB", (1500, 1500), os.urandom(1500 * 1500 * 3)))
    task = MultiModalMessage(content=["Go.", picture], source="user")
    await check_team(tmp_path, [*python("1 / 0"), "Done."], task)


async def test_a_picture_for_a_service(tmp_path: Path) -> None:
    # The service's library writes it as JSON in one go, which takes half of the limit on a slow machine.
    picture = Image(PIL.Image.frombytes("RGB", (1000, 1000), os.urandom(1000 * 1000 * 3)))
    task = MultiModalMessage(content=["Go.", picture], source="user")
    script = tmp_path / "script.json"
    script.write_text(json.dumps([*python("1 / 0"), "Done."]), "utf-8")
    command = [sys.executable, "-m", "tests.support.openai_server", "--repeat", "--script", str(script)]
    # Its time would count if it were a thread.
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        client = make_model(f"{server.stdout.readline().strip()}#m")
        try:
            await check_team(tmp_path, client, task)
        finally:
            await client.close()
            server.terminate()


async def check_team(tmp_path: Path, replies: list[str] | ChatCompletionClient, task: str | MultiModalMessage) -> None:
    async def run() -> None:
        log = RunLog(Journal(tmp_path / "journal.sqlite3"))
        model = ReplayModel(replies) if isinstance(replies, list) else replies
        log.begin("run", "t", "x", None, {})
        model.model_info["vision"] = True
        watch_client(model)
        executor = SandboxCodeExecutor(tmp_path / "work")
        agent = CodeExecutorAgent("coder", executor, model_client=model)
        with observing(log):
            await agent.run(task=task)
        await agent.close()

    await check(run)


@pytest.mark.parametrize("code", ["f()\n" * 60_000, f"x = '{'{_' * 60_000}'", "x = 1\n" * (SIZE // 6)])
async def test_code_that_a_policy_reads(code: str) -> None:
    async with Sandbox(policy="restricted") as sandbox:
        await check(lambda: sandbox.run(code))


@pytest.mark.parametrize("code", ["[{(n,)} for n in range(40_000)]", "[[]] * 340_000", f"print('x\\n' * {SIZE // 2})"])
async def test_values_and_output(code: str) -> None:
    async with Sandbox(limits=Limits(output_bytes=SIZE)) as sandbox:
        await check(lambda: sandbox.run(code))

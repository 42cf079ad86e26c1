"""Code that runs while its model still writes it: the result is that of the whole, and what is no code is undone."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_core.models import CreateResult, LLMMessage, RequestUsage

from coderoom.agents import CodeActAgent
from coderoom.configs import ReplayModel
from coderoom.executors import SandboxCodeExecutor
from tests.agents.acting import MakeActor, add, outputs, there_is
from tests.agents.helpers import TASK, Approver, Client, begin, cancelled, python, turn

Piece = str | Callable[[], Awaitable[object]]


class Writing(Client):
    """Streams its replies in small pieces; a function in a list of pieces is awaited before the next one."""

    def __init__(self, *replies: str | Sequence[Piece], seed: int = 0, end: str = "stop"):
        super().__init__(*(reply if isinstance(reply, str) else "".join(_texts(reply)) for reply in replies))
        self._pieces = list(replies)
        self._random = random.Random(seed)
        self._end = end

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        number = len(self.calls)
        await self._note(messages, True, **arguments)
        reply = self._pieces[number]
        for piece in [reply] if isinstance(reply, str) else reply:
            if not isinstance(piece, str):
                await piece()
                continue
            while piece:
                size = self._random.randint(1, 9)
                yield piece[:size]
                piece = piece[size:]
        whole = reply if isinstance(reply, str) else "".join(_texts(reply))
        end: Any = self._end if number == 0 else "stop"
        yield CreateResult(finish_reason=end, content=whole, usage=RequestUsage(1, 1), cached=False)


def _texts(reply: Sequence[Piece]) -> list[str]:
    return [piece for piece in reply if isinstance(piece, str)]


CODES = {
    "values": "x = [1, 2]\nfor i in x:\n    print(i)\nelse:\n    print('end')\nx",
    "no value": "x = 1\nx;",
    "an error in the middle": "def f():\n    return 1 / 0\n\nprint('before')\nf()\nprint('after')",
    "an error of syntax at the end": "open('made', 'w').close()\nprint('never')\nx = = 1",
    "an error of the whole": "print('never')\ny = 1\nreturn y",
    "text over lines": "s = '''a\nprint('no')\nb'''\nt = (\n1,\n2)\nprint(s, t)",
    "decorators": "def twice(f):\n    return lambda: f() * 2\n\n@twice\n# a remark\ndef two():\n    return 1\n\ntwo()",
    "exceptions": "try:\n    1 / 0\nexcept ValueError as e:\n    print(e)\nfinally:\n    print(1)\n1",
    "awaits": "import asyncio\nawait asyncio.sleep(0)\nasync def g():\n    return 5\n\nprint(await g())\nawait g()",
    "its own loop": "import asyncio\nasync def g():\n    return 5\n\nprint(asyncio.run(g()))\nasyncio.run(g())",
    "magics": "a = 3\n!echo shell\n%time b = 1\nprint(a)",
    "the future": "from __future__ import annotations\ndef f(x: Missing): ...\nprint(f.__annotations__)",
    "a late future": "print('never')\nfrom __future__ import annotations",
    "an end": "print(1)\nraise SystemExit(3)\nprint(2)",
    "a file": "# filename: saved.py\nprint(1)\nprint(2)",
    "files": "open('a.txt', 'w').write('a')\nopen('b.txt', 'w').write('b')",
    "indented": "    print(1)\n    print(2)",
    "remarks": "# only\n\n# remarks\nprint(1)\n# end\n",
    "a backslash": "x = 1 + \\\n2\nprint(x)",
    "a class": "class A:\n    x = 1\n\n    def y(self):\n        return self.x\n\nA().y()",
    "calls": "print(add(1, 2))\nadd(3, 4)",
}
_TIMES = re.compile(r"(?:CPU times|Wall time).*|(?<=line )\d+(?=, in <cell)|<cell \d+>")


async def _outputs(make: Callable[..., CodeActAgent], blocks: Sequence[str], seed: int, **more: Any) -> list[str]:
    """What the code prints, all of it in one session."""
    replies = [f"I run it.\n{python(block)}\nThat is all." for block in blocks]
    client = Writing(*replies, "Done.", seed=seed)
    agent = make(client, model_client_stream=True, tools=[add], max_steps=len(blocks) + 1, **more)
    response = await turn(agent, TASK)
    await agent.close()
    return [_TIMES.sub("#", output) for output in outputs(response.inner_messages or [])]


@pytest.mark.slow
async def test_the_result_is_that_of_the_whole(actor: MakeActor, tmp_path: Path) -> None:
    look = "import os\nprint(sorted(n for n in globals() if len(n) < 4), sorted(os.listdir()))"
    blocks = [each for code in CODES.values() for each in (code, look)]
    whole = await _outputs(actor, blocks, seed=0)
    assert len(whole) == len(blocks)
    for path in (tmp_path / "work").iterdir():
        path.unlink()
    assert await _outputs(actor, blocks, seed=7, eager=True) == whole


@pytest.mark.parametrize("fence", ["```", "~~~~"])
async def test_a_statement_runs_before_the_next_one_is_written(actor: MakeActor, tmp_path: Path, fence: str) -> None:
    async def has_run() -> None:
        await there_is(tmp_path / "work" / "begun")

    reply: list[Piece] = [
        f"{fence}python\nopen('begun', 'w').close()\nx = 1\nprint(x)",
        has_run,
        f"\nx + 1\n{fence}\nI am",
        has_run,
        " done.",
    ]
    response = await turn(actor(Writing(reply, "2."), model_client_stream=True, eager=True), TASK)
    assert outputs(response.inner_messages or []) == ["1\n2\n"]


CHANGED = "open('a.txt', 'w').close()\nx = 2\nx += 1\n"
TAKEN_BACK = {
    "it has no end": f"```python\n{CHANGED}print(x)",
    "it was a thought": f"<think>\n```python\n{CHANGED}print(x)\n```\n</think>\nNothing to do.",
    "it is in another block": f"````text\n```python\n{CHANGED}print(x)\n```\n````",
}


@pytest.mark.parametrize("name", TAKEN_BACK)
async def test_what_turns_out_to_be_no_code_is_undone(actor: MakeActor, tmp_path: Path, name: str) -> None:
    reply = TAKEN_BACK[name]
    client = Writing(python("x = 1"), reply, python("x"), "Done.")
    agent = actor(client, model_client_stream=True, eager=True)
    response = await turn(agent, TASK)
    if len(client.calls) < 3:  # It was an answer.
        response = await turn(agent, TASK)
    assert outputs(response.inner_messages or [])[-1] == "1\n"
    assert not (tmp_path / "work" / "a.txt").exists()


@pytest.mark.parametrize("way", ["token", "task"])
async def test_a_turn_that_ends_while_its_model_writes_leaves_nothing(
    actor: MakeActor, tmp_path: Path, way: str
) -> None:
    async def wait() -> None:
        await there_is(tmp_path / "work" / "a.txt")
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()
    reply: list[Piece] = [f"```python\n{CHANGED}import time\ntime.sleep(300)\n", "print(x)\n", wait]
    client = Writing(python("x = 1"), reply, python("x"), "Done.")
    agent = actor(client, model_client_stream=True, eager=True)
    running, token = begin(agent, TASK)
    await asyncio.wait_for(begun.wait(), 30)
    await cancelled(running, token, way)
    assert not (tmp_path / "work" / "a.txt").exists()
    response = await turn(agent, TASK)
    assert outputs(response.inner_messages or [])[-1] == "1\n"


async def test_calls_wait_for_the_end_of_the_reply(actor: MakeActor, tmp_path: Path) -> None:
    calls: list[str] = []

    def order(item: str) -> str:
        """Order something."""
        calls.append(item)
        return f"{item} is ordered"

    async def has_begun() -> None:
        await there_is(tmp_path / "work" / "begun")
        assert not calls

    reply: list[Piece] = [
        "```python\nopen('begun', 'w').close()\nprint(order('apple'))\nx = 1\nprint(x)\n",
        has_begun,
        "x += 1\n```\nAll ",
        has_begun,
        "ordered.",
    ]
    back: list[Piece] = ["```python\norder('pear')\nopen('begun', 'w').close()\nx = 5\nprint(x)\n", "no end"]
    agent = actor(Writing(reply, back, python("x"), "Done."), tools=[order], model_client_stream=True, eager=True)
    response = await turn(agent, TASK)
    assert outputs(response.inner_messages or [])[0] == "apple is ordered\n1\n"
    assert calls == ["apple"]
    assert outputs(response.inner_messages or [])[-1] == "2\n"


HOOK = """import sys
frame = sys._getframe()
while frame.f_code.co_name != "_follow":
    frame = frame.f_back
room = frame.f_locals["self"]
run, pear = room._run, order

def at_the_end(code, begin, filename):
    if begin == len(code):
        pear("pear")
    return run(code, begin, filename)

room._run = at_the_end
"""
GET = "import coderoom_guest.statements as statements\n(get,) = statements._known.values()\n"


@pytest.mark.parametrize(
    ("code", "calls", "printed"),
    [
        (f"{HOOK}x = 1\nprint(x)\n", None, ""),
        ("print(order('apple'))\nx = 1\nx = = 2", [], "SyntaxError"),
        (f"{GET}print(order('apple'))\nget('no code')\nx = 1\nprint(x)", ["apple"], "apple is ordered\n1\n"),
        (f"{GET}x = 1\nprint(x)\nget()\nget()", [], "there is no further code"),
        ("print([each for each in globals() if 'next' in each])\nprint(order('apple'))", ["apple"], "[]\napple"),
    ],
    ids=[
        "the last breath of what is taken back",
        "no code together",
        "it says it is no code",
        "it waits for ever",
        "it looks for it",
    ],
)
async def test_code_cannot_make_its_calls_early_or_twice(
    actor: MakeActor, code: str, calls: list[str] | None, printed: str
) -> None:
    made: list[str] = []

    def order(item: str) -> str:
        """Order something."""
        made.append(item)
        return f"{item} is ordered"

    async def pause() -> None:
        await asyncio.sleep(0.2)

    reply: str | list[Piece] = python(code) if calls is not None else [f"```python\n{code}", pause, "no end"]
    agent = actor(Writing(reply, python("1"), "Done."), tools=[order], model_client_stream=True, eager=True)
    response = await turn(agent, TASK)
    assert made == (calls or [])
    assert printed in outputs(response.inner_messages or [])[0]


@pytest.mark.slow
async def test_the_time_of_the_model_is_none_of_the_code(tmp_path: Path) -> None:
    async def think() -> None:
        await asyncio.sleep(3)

    reply: list[Piece] = ["```python\nx = 1\ny = 2\nz = 3\n", think, "x + y\n```"]
    agent = CodeActAgent(
        "actor", Writing(reply, "3."), SandboxCodeExecutor(timeout=1), model_client_stream=True, eager=True
    )
    response = await turn(agent, TASK)
    await agent.close()
    assert outputs(response.inner_messages or []) == ["3\n"]


async def test_in_tags_too(actor: MakeActor, tmp_path: Path) -> None:
    async def has_run() -> None:
        await there_is(tmp_path / "work" / "begun")

    reply: list[Piece] = ["<execute>\nopen('begun', 'w').close()\nx = 1\nprint(x)\n", has_run, "x + 1\n</execute>"]
    client = Writing(reply, "2.")
    response = await turn(actor(client, code_format="execute", model_client_stream=True, eager=True), TASK)
    assert outputs(response.inner_messages or []) == ["1\n2\n"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model_client_stream": False}, "model_client_stream=True"),
        ({"approval_func": Approver(True)}, "an approval and check_types"),
        ({"code_executor": SandboxCodeExecutor(state="fresh")}, "state='session'"),
        ({"code_executor": SandboxCodeExecutor(policy="restricted")}, "policy='open'"),
    ],
)
def test_what_cannot_be_eager_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        CodeActAgent("actor", Client("x"), eager=True, **{"model_client_stream": True, **arguments})


def test_it_comes_back_from_a_config() -> None:
    agent = CodeActAgent("actor", ReplayModel(["Hello."]), model_client_stream=True, eager=True)
    again = CodeActAgent.load_component(agent.dump_component())
    assert again.dump_component() == agent.dump_component()
    assert again.dump_component().config["eager"]

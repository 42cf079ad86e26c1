"""Pictures that code makes, as models that see pictures get them."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_core import Image
from autogen_core.models import LLMMessage, UserMessage

from coderoom.agents import CodeExecutorAgent
from coderoom.executors import SandboxCodeExecutor
from tests.agents.acting import MakeActor
from tests.agents.helpers import TASK, Client, MakeCoder, decide, python, turn

DRAW = """
import struct, zlib
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
def draw(name, width, height, grey):
    rows = zlib.compress((b'\\0' + bytes([grey]) * width) * height)
    head = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
    with open(name, 'wb') as file:
        file.write(b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', head) + chunk(b'IDAT', rows) + chunk(b'IEND', b''))
"""


def pictures(messages: list[LLMMessage]) -> list[tuple[int, int]]:
    """The sizes of the pictures of a request."""
    parts: list[Any] = [part for each in messages if isinstance(each, UserMessage) for part in each.content]
    return [part.image.size for part in parts if isinstance(part, Image)]


async def test_the_same_picture_is_sent_once_and_a_changed_one_again(actor: MakeActor) -> None:
    code = [DRAW + "draw('a.png', 20, 10, 0)", "draw('b.png', 20, 10, 0)", "draw('a.png', 20, 10, 99)"]
    client = Client(*map(python, code), "Seen.", vision=True)
    await turn(actor(client), TASK)
    assert [len(pictures(call.messages)) for call in client.calls] == [0, 1, 1, 2]
    assert "b.png: already shown above." in client.calls[2].texts[-1]


async def test_a_large_picture_is_made_as_small_as_models_use_it(actor: MakeActor) -> None:
    client = Client(python(DRAW + "draw('wide.png', 4000, 1000, 0)"), "Seen.", vision=True)
    await turn(actor(client), TASK)
    assert pictures(client.calls[1].messages) == [(1568, 392)]


async def test_of_many_pictures_some_are_only_named(actor: MakeActor) -> None:
    code = "for number in range(4): draw(f'{number}.png', 1500, 1500, number)"
    client = Client(python(DRAW + code), "Seen.", vision=True)
    await turn(actor(client), TASK)
    assert len(pictures(client.calls[1].messages)) == 2
    assert "2.png, 3.png: not shown, since these are too many pictures." in client.calls[1].texts[-1]


async def test_only_the_newest_pictures_are_sent_again(actor: MakeActor) -> None:
    code = [python(f"{DRAW}draw('{number}.png', 1500, 1500, {number})") for number in range(3)]
    client = Client(*code, "Seen.", python("draw('0.png', 1500, 1500, 0)"), "Seen.", vision=True)
    agent = actor(client)
    await turn(agent, TASK)
    assert [len(pictures(call.messages)) for call in client.calls] == [0, 1, 2, 2]
    assert sum("[A picture that was shown before is left out.]" in text for text in client.calls[3].texts) == 1
    await turn(agent, "Again.")  # What is left out may come again.
    assert len(pictures(client.calls[-1].messages)) == 2
    assert "already shown" not in client.calls[-1].texts[-1]


@pytest.mark.parametrize("vision", [True, False])
async def test_a_code_executor_agents_model_sees_them_too(
    agents: list[CodeExecutorAgent], coder: MakeCoder, vision: bool, tmp_path: Any
) -> None:
    client = Client(python(DRAW + "draw('a.png', 2, 2, 0)\n1 / 0"), decide(True), python("2"), "Two.", vision=vision)
    await turn(coder(client, code_executor=SandboxCodeExecutor(tmp_path), max_retries_on_error=1), TASK)
    assert [len(pictures(call.messages)) for call in client.calls] == [0, *[int(vision)] * 3]

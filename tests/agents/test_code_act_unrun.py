"""Replies of a `CodeActAgent`'s model with code where none is run, and what a turn's answer lists of its steps."""

from __future__ import annotations

import json

import pytest
from autogen_agentchat.base import Response

from tests.agents.acting import MakeActor, codes, execute, outputs
from tests.agents.helpers import TASK, Client, facts_of, python, stream, text_of, total, turn

# --- Code where none is run ---


@pytest.mark.parametrize(
    ("code_format", "reply", "told"),
    [
        ("execute", f"Let me compute.\n\n{python('print(6 * 7)')}", "between <execute> and </execute>"),
        ("fence", "```\nprint(6 * 7)\n```", "its block has no language"),
        ("fence", "```python print(6 * 7)```", "on a line of its own"),
    ],
)
async def test_code_that_stands_where_none_is_run_is_told_once(
    actor: MakeActor, code_format: str, reply: str, told: str
) -> None:
    code = execute("print(42)") if code_format == "execute" else python("print(42)")
    client = Client(reply, code, reply)
    items = await stream(actor(client, code_format=code_format), TASK)
    assert outputs(items) == ["42\n"]
    assert told in client.calls[1].texts[-1]
    assert codes(items) == [[], ["print(42)"]]
    response = items[-1]
    assert isinstance(response, Response)
    assert facts_of(response)["stop_reason"] == "answered"
    assert facts_of(response)["summary"] == reply
    counted = total([*(response.inner_messages or []), response.chat_message])
    assert counted.prompt_tokens == client.total_usage().prompt_tokens


@pytest.mark.parametrize(
    ("code_format", "reply"),
    [
        ("fence", "It printed\n\n```\ntotal: 5\nTotal(x=1) and more\n```"),
        ("fence", "It printed\n\n```\nPoint(x=1)\n```"),
        ("fence", "The files are\n\n```\na.txt\nb.txt\n```"),
        ("fence", "Use `print(1)` for that."),
        ("fence", "```json\n[1]\n```"),
        ("execute", "I ran\n\n```python\nprint('Point(x=1)')\n```"),
        ("execute", "```text\nprint(1)\n```"),
    ],
)
async def test_an_answer_that_shows_something_is_an_answer(actor: MakeActor, code_format: str, reply: str) -> None:
    code = "print('Point(x=1)')"
    client = Client(execute(code) if code_format == "execute" else python(code), reply)
    response = await turn(actor(client, code_format=code_format), TASK)
    assert (facts_of(response)["stop_reason"], facts_of(response)["summary"]) == ("answered", reply)


async def test_an_unclosed_tag_is_called_by_its_name(actor: MakeActor) -> None:
    client = Client("<execute>\nprint(1", execute("print(1)"), "1.")
    await turn(actor(client, code_format="execute"), TASK)
    assert "its closing </execute> is missing" in client.calls[1].texts[-1]


# --- Files of a whole turn ---


@pytest.mark.parametrize("on_error", ["keep", "rollback"])
async def test_the_answer_lists_the_files_of_all_steps(actor: MakeActor, on_error: str) -> None:
    client = Client(
        python("open('one.txt', 'w').write('1'); open('gone.txt', 'w').write('1')"),
        python("open('half.txt', 'w').write('half')\n1 / 0"),
        python("import os\nos.remove('gone.txt')\nopen('one.txt', 'w').write('22')\nopen('two.txt', 'w').write('2')"),
        python("print('done')"),
        "Written.",
    )
    response = await turn(actor(client, on_error=on_error), TASK)
    kept = ["half.txt"] if on_error == "keep" else []
    assert sorted(item["name"] for item in json.loads(facts_of(response)["artifacts"])) == [*kept, "one.txt", "two.txt"]
    assert "Files: " in text_of(response)

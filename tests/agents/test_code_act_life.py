"""What a `CodeActAgent` keeps: over failures, over a reset, a close and another event loop, and in a saved state."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken

from coderoom.agents import CodeActAgent
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.steps import StepObserver, observing
from tests.agents.acting import SLEEPS, MakeActor, Shop, outputs, remembered, there_is
from tests.agents.helpers import TASK, Client, begin, facts_of, python, stream, text_of, turn

# --- A failing cell ---

HALF = python("x = 2\nopen('left.txt', 'w').close()\nraise ValueError('first')")
LOOK = python("import os\nprint(x, os.listdir())")


async def test_what_a_failing_cell_did_is_kept(actor: MakeActor) -> None:
    client = Client(python("x = 1"), HALF, LOOK, "Seen.")
    assert outputs(await stream(actor(client), TASK))[2] == "2 ['left.txt']\n"
    assert "undone" not in client.calls[2].texts[-1]


async def test_or_rolled_back_to_the_checkpoint_before_it(actor: MakeActor) -> None:
    shop = Shop()
    failing = python("x = price('apple')\nopen('left.txt', 'w').close()\nraise ValueError('first')")
    client = Client(python("x = 1"), failing, LOOK, "Seen.")
    assert outputs(await stream(actor(client, on_error="rollback", tools=shop.functions), TASK))[2] == "1 []\n"
    told = client.calls[2].texts[-1]
    assert "The failed code was undone: variables and files are as they were before it" in told
    # What was done on the host is not undone, and is told.
    assert "- price(item='apple'): ok" in told


async def test_each_failing_cell_goes_back_to_its_own_beginning(actor: MakeActor) -> None:
    def count(error: str) -> str:
        return python(f"n += 1\nprint('n', n)\nraise ValueError({error!r})")

    client = Client(python("n = 0"), count("one"), python("n += 10"), count("two"), python("print('n', n)"), "Done.")
    items = await stream(actor(client, on_error="rollback"), TASK)
    assert [output.splitlines()[0] for output in outputs(items)[1::2]] == ["n 1", "n 11"]
    assert outputs(items)[-1] == "n 10\n"


async def test_a_cancelled_cell_is_rolled_back_too(actor: MakeActor, tmp_path: Path) -> None:
    client = Client(python("x = 1"), python(f"x = 2\n{SLEEPS}"), LOOK, "Seen.")
    agent = actor(client, on_error="rollback")
    running, token = begin(agent, TASK)
    await there_is(tmp_path / "work" / "begun")
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "The failed code was undone" in (await remembered(agent))[-1]
    assert outputs(await stream(agent, "Go on.")) == ["1 []\n"]


async def test_a_process_that_died_is_told_or_brought_back(actor: MakeActor) -> None:
    die = python("import os\nos._exit(7)")
    client = Client(python("x = 1"), die, python("print('x' in globals())"), "Gone.")
    assert outputs(await stream(actor(client), TASK))[2] == "False\n"
    assert "earlier variables are gone" in client.calls[2].texts[-1]
    client = Client(python("x = 1"), die, python("print('x' in globals())"), "There.")
    assert outputs(await stream(actor(client, on_error="rollback"), TASK))[2] == "True\n"


# --- A saved state ---


async def through_json(agent: CodeActAgent) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(await agent.save_state(), allow_nan=False))
    return found


def other(tmp_path: Path, *replies: str, **arguments: Any) -> CodeActAgent:
    return CodeActAgent("actor", Client(*replies), SandboxCodeExecutor(tmp_path / "other"), **arguments)


async def test_variables_come_back_and_functions_are_not_called_again(actor: MakeActor, tmp_path: Path) -> None:
    shop = Shop()
    cells = [
        python(
            "import math\ndef double(x):\n    return 2 * x\ncost = price('apple')\nopen('kept.txt', 'w').write('1')"
        ),
        python(
            "placed = await order('pear', 3)\ntry:\n    price('plum')\nexcept KeyError as error:\n    why = str(error)"
        ),
    ]
    agent = actor(Client(*cells, "Done."), tools=shop.functions)
    await turn(agent, TASK)
    state, calls = await through_json(agent), list(shop.calls)
    look = python("print(double(cost), placed['id'], why, math.pi > 3, open('kept.txt').read(), price('pear'))")
    again = other(tmp_path, look, "Seen.", tools=shop.functions)
    await again.load_state(state)
    assert await remembered(again) == await remembered(agent)
    assert outputs(await stream(again, "And now?")) == ["1.0 2 'plum' True 1 0.75\n"]
    assert shop.calls == [*calls, "price(pear)"]
    assert (await remembered(again))[len(await remembered(agent))] == "And now?"
    await again.close()


async def test_what_does_not_come_back_is_told(actor: MakeActor, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.txt").write_text("7")
    cells = [python("x = open('data.txt').read()"), python("y = 1\n1 / 0"), python("z = 3")]
    agent = actor(Client(*cells, "Done."))
    await turn(agent, TASK)
    again = other(tmp_path, python("print(z, 'x' in globals(), 'y' in globals())"), "Seen.")
    await again.load_state(await through_json(agent))
    assert outputs(await stream(again, "And now?")) == ["3 False False\n"]
    [told] = [text for text in await remembered(again) if "Not everything came back" in text]
    assert "the code that begins with \"x = open('data.txt').read()\" ended with 'error'" in told
    assert "FileNotFoundError" in told
    assert "code that had not ended well (1 times) was not run again" in told
    # It is told once, and what is gone stays gone.
    assert await through_json(again) != await through_json(agent)
    third = other(tmp_path, "Hello.")
    await third.load_state(await through_json(again))
    await turn(third, "Hello?")
    assert sum("Not everything came back" in text for text in await remembered(third)) == 1
    await again.close()
    await third.close()


async def test_what_comes_out_otherwise_is_told(actor: MakeActor, tmp_path: Path) -> None:
    cells = [
        python("import random\nr = random.random()\nlast = r\nr"),
        python("same = 1\nprint('same', object())"),
        python("import uuid\nprint(uuid.uuid4())"),
    ]
    agent = actor(Client(*cells, "Done."))
    await turn(agent, TASK)
    again = other(tmp_path, python("print(same, r)"), "Seen.")
    await again.load_state(await through_json(agent))
    items = await stream(again, "And now?")
    [told] = [text for text in await remembered(again) if "came out otherwise" in text]
    assert "the code that begins with 'import random' gave '0." in told
    assert "the code that begins with 'import uuid' gave " in told
    assert "'same" not in told
    assert "Not everything came back" not in told
    # What is told is true, and is told once.
    assert outputs(items)[0].split()[1] in told
    third = other(tmp_path, "Hello.")
    state = await through_json(again)
    await again.close()
    await third.load_state(state)
    await turn(third, "Hello?")
    assert sum("came out otherwise" in text for text in await remembered(third)) == 2
    await third.close()


async def test_a_call_that_comes_out_otherwise_is_not_made(actor: MakeActor, tmp_path: Path) -> None:
    shop = Shop()
    code = "import os\nnumber = 1 if os.path.exists('first') else 2\nopen('first', 'w').close()\n"
    code += "await order('apple', number)"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "first").touch()
    agent = actor(Client(python(code), "Done."), tools=shop.functions)
    await turn(agent, TASK)
    again = other(tmp_path, "Hello.", tools=shop.functions)
    await again.load_state(await through_json(agent))
    await turn(again, "Hello?")
    assert shop.calls == ["order(apple, 2)"]
    assert "order() is not called again to restore a session" in " ".join(await remembered(again))
    await again.close()


class Before(StepObserver):
    """Knows the steps of a run that was ended, each once."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str, Any]] = []
        self.known: list[tuple[str, str, Any]] = []
        self.notes: list[str] = []

    def find(self, kind: str, request: Any) -> Any:
        text = json.dumps(request, sort_keys=True)
        place = next((place for place, step in enumerate(self.known) if step[:2] == (kind, text)), None)
        return None if place is None else self.known.pop(place)[2]

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        self.kept.append((kind, json.dumps(request, sort_keys=True), result))

    def note(self, text: str) -> None:
        self.notes.append(text)


async def test_a_call_that_comes_out_otherwise_in_a_resumed_run_is_not_made(actor: MakeActor) -> None:
    """The code had ended before, and is run again for its variables."""
    shop, before = Shop(), Before()
    ordering = python("import time\norder = await order('apple', time.time_ns())")
    with observing(before):
        await stream(actor(Client(ordering, "Ordered."), tools=shop.functions), TASK)
        before.known = before.kept[:]
        await stream(actor(Client(ordering, python("print(order)"), "Ordered."), tools=shop.functions), TASK)
    assert len(shop.calls) == 1
    assert "order() is not called again to restore a session" in before.notes[0]


async def test_code_of_a_resumed_run_has_its_variables_again_after_a_task_is_undone(
    actor: MakeActor, tmp_path: Path
) -> None:
    shop, before, executor = Shop(), Before(), SandboxCodeExecutor(tmp_path / "work")
    ordering, look = python("order = await order('apple')"), python("print(order)")
    with observing(before):
        await stream(actor(Client(ordering, "Ordered."), tools=shop.functions), TASK)
        before.known = before.kept[:]
        client = Client(ordering, "Ordered.", *[look, "So."] * 2)
        agent = actor(client, tools=shop.functions, code_executor=executor)
        await stream(agent, TASK)
        ran = agent.ran()
        shown = outputs(await stream(agent, "Look."))
        await executor.restart()
        agent.go_back(ran)
        assert outputs(await stream(agent, "Look.")) == shown == ["{'item': 'apple', 'number': 1, 'id': 1}\n"]
    assert len(shop.calls) == 1


async def test_code_of_a_resumed_run_comes_back_in_another_agent(actor: MakeActor) -> None:
    shop, before = Shop(), Before()
    ordering, look = python("order = await order('apple')"), python("print(order)")
    with observing(before):
        await stream(actor(Client(ordering, "Ordered."), tools=shop.functions), TASK)
        before.known = before.kept[:]
        agent = actor(Client(ordering, "Ordered.", look, "So."), tools=shop.functions)
        await stream(agent, TASK)
        shown = outputs(await stream(agent, "Look."))
        other = actor(Client(look, "So."), tools=shop.functions)
        await other.load_state(await agent.save_state())
        assert outputs(await stream(other, "Look.")) == shown == ["{'item': 'apple', 'number': 1, 'id': 1}\n"]
    assert len(shop.calls) == 1


async def test_answers_that_are_no_plain_json_come_back_as_they_were(actor: MakeActor, tmp_path: Path) -> None:
    def measure() -> list[Any]:
        """Measure."""
        return [float("nan"), float("inf"), "\ud800", 10**30]

    agent = actor(Client(python("found = measure()"), "Done."), tools=[measure])
    await turn(agent, TASK)
    code = "print(found[0] != found[0], found[1] > 1e300, ascii(found[2]), found[3] == 10**30)"
    again = other(tmp_path, python(code), "Seen.", tools=[measure])
    await again.load_state(await through_json(agent))
    assert outputs(await stream(again, "And now?")) == ["True True '\\ud800' True\n"]
    await again.close()


async def test_an_answer_too_long_to_keep_is_told(actor: MakeActor, tmp_path: Path) -> None:
    def book() -> str:
        """A whole book."""
        return "x" * 200_000

    agent = actor(Client(python("text = book()"), python("size = len(text)"), "Done."), tools=[book])
    await turn(agent, TASK)
    assert len(json.dumps(await agent.save_state())) < 20_000
    again = other(tmp_path, "Hello.", tools=[book])
    await again.load_state(await through_json(agent))
    await turn(again, "Hello?")
    assert "its answer was too long to keep" in " ".join(await remembered(again))
    await again.close()


async def test_a_loaded_state_takes_the_place_of_what_was_there(actor: MakeActor) -> None:
    agent = actor(Client(python("x = 1"), "Set.", python("print('x' in globals())"), "Gone."))
    beginning = await through_json(agent)
    await turn(agent, TASK)
    await agent.load_state(beginning)
    assert await remembered(agent) == []
    assert outputs(await stream(agent, "And now?")) == ["False\n"]


@pytest.mark.slow
async def test_cells_are_not_lost_when_their_return_is_cancelled(actor: MakeActor, tmp_path: Path) -> None:
    agent = actor(Client(python("x = 1"), python(f"y = 2\n{SLEEPS.replace('300', '1')}"), "Set."))
    await turn(agent, TASK)
    again = other(tmp_path, python("print(x, y)"), "Seen.")
    await again.load_state(await through_json(agent))
    running, token = begin(again, "And now?")
    await there_is(tmp_path / "other" / "begun")
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert outputs(await stream(again, "Again.")) == ["1 2\n"]
    await again.close()


async def test_a_variable_that_was_lost_before_does_not_come_back(actor: MakeActor, tmp_path: Path) -> None:
    agent = actor(Client(python("x = 1"), python("import os\nos._exit(7)"), python("y = 2"), "Set."))
    await turn(agent, TASK)
    again = other(tmp_path, python("print('x' in globals(), y)"), "Seen.")
    await again.load_state(await through_json(agent))
    assert outputs(await stream(again, "And now?")) == ["False 2\n"]
    await again.close()


# --- Reset, close, and another event loop ---


async def test_a_reset_forgets_all(actor: MakeActor) -> None:
    agent = actor(Client(python("x = 1"), "Set.", python("print('x' in globals())"), "Gone."))
    await turn(agent, TASK)
    await agent.on_pause(CancellationToken())
    await agent.on_reset(CancellationToken())
    assert await remembered(agent) == []
    assert (await agent.save_state())["cells"] == []
    assert outputs(await stream(agent, "And now?")) == ["False\n"]


async def test_after_a_close_it_can_be_used_again_and_has_its_variables(actor: MakeActor) -> None:
    shop = Shop()
    agent = actor(Client(python("x = price('apple')"), "Set.", python("print(x)"), "Seen."), tools=shop.functions)
    await turn(agent, TASK)
    await agent.close()
    await agent.close()
    assert agent.code_executor.wall == "auto"
    assert outputs(await stream(agent, "And now?")) == ["0.5\n"]
    assert shop.calls == ["price(apple)"]


async def test_after_a_close_it_knows_that_failed_code_is_not_run_again(actor: MakeActor) -> None:
    agent = actor(Client(python("x = 1\n1 / 0"), "Failed.", "Hello."))
    await turn(agent, TASK)
    await agent.close()
    await turn(agent, "And now?")
    assert "code that had not ended well (1 times) was not run again" in " ".join(await remembered(agent))


async def test_close_without_use(actor: MakeActor) -> None:
    await actor(Client()).close()


async def test_an_executor_is_one_agents_at_a_time(tmp_path: Path) -> None:
    executor = SandboxCodeExecutor(tmp_path)
    first, second = (CodeActAgent(name, Client(python("print(1)"), "One."), executor) for name in ("first", "second"))
    await stream(first, TASK)
    with pytest.raises(RequestError, match="Another CodeActAgent uses this executor"):
        await stream(second, TASK)
    await first.close()
    assert outputs(await stream(second, TASK)) == ["1\n"]
    await second.close()


async def test_starting_before_the_first_turn_starts_once(actor: MakeActor) -> None:
    shop = Shop()
    agent = actor(Client(python("price('pear')"), "Seen."), tools=shop.functions)
    await agent.code_executor.start()
    wall = agent.code_executor.wall
    await agent.start()
    assert agent.code_executor.wall == wall != "auto"
    assert outputs(await stream(agent, TASK)) == ["0.75\n"]


def test_it_goes_on_in_another_event_loop(tmp_path: Path) -> None:
    shop = Shop()
    replies = [python("x = price('apple')"), "Set.", python("print(x, price('pear'))"), "Seen."]
    agent = CodeActAgent("actor", Client(*replies), SandboxCodeExecutor(tmp_path), tools=shop.functions)
    asyncio.run(_one_turn(agent, close=False))
    assert "0.5 0.75\n" in asyncio.run(_one_turn(agent, close=True))
    assert shop.calls == ["price(apple)", "price(pear)"]


async def _one_turn(agent: CodeActAgent, *, close: bool) -> str:
    response = await turn(agent, TASK)
    assert facts_of(response)["outcome"] == "ok"
    if close:
        await agent.close()
    return text_of(response)

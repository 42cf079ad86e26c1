"""Wrong calls of ten functions are stopped before anything happens; right ones that look odd are not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.agents.acting import MakeActor, outputs
from tests.agents.helpers import TASK, Client, python, stream
from tests.agents.wrong_calls import FUNCTIONS, OPENING, RIGHT, WRONG, called

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _none_called() -> None:
    called.clear()


async def test_wrong_calls_are_stopped_before_any_effect(actor: MakeActor) -> None:
    replies = [python(f"print('begun')\n{code}") for code in WRONG]
    agent = actor(Client(*replies, "Done."), tools=FUNCTIONS, check_types=True, max_steps=100)
    found = outputs(await stream(agent, TASK))
    assert [code for code, output in zip(WRONG, found, strict=True) if "Nothing was run" not in output] == []
    assert called == []


@pytest.mark.parametrize("codes", [RIGHT, *((code,) for code in OPENING)])
async def test_right_calls_run(actor: MakeActor, codes: Sequence[str]) -> None:
    agent = actor(Client(*map(python, codes), "Done."), tools=FUNCTIONS, check_types=True, max_steps=100)
    found = outputs(await stream(agent, TASK))
    failed = [
        (code, output) for code, output in zip(codes, found, strict=True) if "Error" in output or "was run" in output
    ]
    assert failed == []
    assert codes is not RIGHT or {*called} == {function.__name__ for function in FUNCTIONS}

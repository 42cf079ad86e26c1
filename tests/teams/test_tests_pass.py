"""`TestsPass` ends a run when the tests pass, and looks at new code only."""

from __future__ import annotations

import pytest
from autogen_agentchat.base import TerminatedException
from autogen_agentchat.messages import BaseChatMessage, TextMessage

from coderoom.teams import TestsPass

TESTS = "from solution import twice\n\n\ndef test_twice():\n    assert twice(2) == 4\n"
RIGHT = "```python\ndef twice(n):\n    return n * 2\n```"


def say(text: str, source: str = "coder") -> list[BaseChatMessage]:
    return [TextMessage(content=text, source=source)]


@pytest.mark.slow
async def test_it_is_met_by_code_of_its_sources_once_until_a_reset() -> None:
    condition = TestsPass(TESTS, sources=["coder"])
    for unmet in (say("Hello."), say(RIGHT, "reviewer"), say(RIGHT.replace("* 2", "+ 3"))):
        assert await condition(unmet) is None
    stop = await condition(say(RIGHT))
    assert stop is not None
    assert (stop.source, condition.terminated) == ("TestsPass", True)
    assert "1 of 1 tests passed" in stop.content
    with pytest.raises(TerminatedException):
        await condition(say(RIGHT))
    await condition.reset()
    assert await condition(say("It is done.")) is None  # The code of before is gone.

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.integrations.rewards import Rewards, read_row
from coderoom.integrations.trl import CodeReward

TWICE = "```python\ndef twice(n):\n    return 2 * n\n```"
WRONG = "```python\ndef twice(n):\n    return n\n```"
EQUAL = "class Any(int):\n    def __eq__(self, _):\n        return True\n"
CHEAT = f"```python\n{EQUAL}def twice(n):\n    return Any()\n```"
EXIT = "```python\nimport os\nos._exit(0)\n```"
TEST = "assert twice(2) == 4"


@pytest.fixture(scope="module")
def reward() -> Iterator[CodeReward]:
    with CodeReward() as reward:
        yield reward


def test_only_code_that_passes_is_rewarded(reward: CodeReward) -> None:
    completions = [TWICE, WRONG, CHEAT, EXIT, "def twice(n): return n + n", "I do not know."]
    assert reward(completions, tests=[TEST] * 6, prompts=["?"] * 6) == [1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("columns", "completion", "expected"),
    [
        ({"tests": ["from solution import twice\n\ndef test_it():\n    assert twice(2) == 4\n"]}, TWICE, 1),
        ({"tests": [["assert twice(1) == 2", "assert twice(2) == 5"]]}, TWICE, 0),
        ({"test_list": [["assert floor(twice(2)) == 4"]], "test_imports": [["from math import floor"]]}, TWICE, 1),
        ({"test": ["def check(f):\n    assert f(2) == 4"], "entry_point": ["twice"]}, WRONG, 0),
        ({"stdin": ["3"], "stdout": ["6"]}, "```python\nprint(2 * int(input()))\n```", 1),
        ({"tests": [[{"stdin": "3", "stdout": "6"}, {"stdin": "4", "stdout": "9"}]]}, "```py\nprint(6)\n```", 0),
        ({"tests": [None], "prompts": ["?"]}, TWICE, None),
    ],
)
def test_tests_of_data_sets(reward: CodeReward, columns: dict[str, Any], completion: str, expected: float) -> None:
    assert reward([completion], **columns) == [expected]


def test_body_that_goes_on_from_a_prompt(reward: CodeReward) -> None:
    prompt = "FACTOR = 2\n\ndef twice(n):\n"
    check = "def check(f):\n    assert f(2) == 4"
    columns = {"prompts": [prompt], "test": [check], "entry_point": ["twice"]}
    assert reward(["    return FACTOR * n"], **columns) == [1]
    assert reward(["```python\ndef twice(n):\n    return FACTOR * n\n```"], **columns) == [1]
    assert reward(["    return 5"], **columns) == [0]


def test_conversations_and_thoughts(reward: CodeReward) -> None:
    messages = [{"role": "assistant", "content": f"<think>{WRONG}</think>{TWICE}"}]
    assert reward([messages], tests=[TEST]) == [1]


def test_tests_that_cannot_be_read(reward: CodeReward) -> None:
    with pytest.raises(RequestError, match="no tests in a row with 'question'"):
        read_row({"question": "?"})
    with pytest.raises(RequestError, match="stdin"):
        reward([TWICE], tests=[[{"stdin": 1, "stdout": "2"}]])


async def test_rewards_from_several_loops() -> None:
    with Rewards(timeout=5) as rewards:
        verdict = await rewards.verdict(WRONG, TEST)
        assert not verdict.passed
        assert "assert twice(2) == 4" in verdict.result
        found = []
        thread = threading.Thread(target=lambda: found.append(asyncio.run(rewards.verdict(TWICE, TEST))))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert found[0].passed
    with pytest.raises(RequestError, match="closed"):
        rewards.verdicts([TWICE], [TEST])

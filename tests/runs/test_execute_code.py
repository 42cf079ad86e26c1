"""`execute_code`: what it answers, and what the answer holds."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest
from autogen_ext.models.replay import ReplayChatCompletionClient

import coderoom
from coderoom import execute_code
from coderoom.sandbox import Sandbox
from tests.runs.answers import asked, children, model, python

USERS = [{"name": "Alice", "score": 95}, {"name": "Bob", "score": 87}, {"name": "Charlie", "score": 92}]
SCORES = [78, 92, 85, 88, 95, 72, 90]


@pytest.fixture(scope="module")
async def restricted() -> AsyncIterator[Sandbox]:
    """What a call has that names no sandbox, for many calls."""
    async with Sandbox(policy="restricted") as sandbox:
        yield sandbox


QUESTIONS: list[tuple[str, str, Any]] = [
    ("Calculate the factorial of 10", "import math\nresult = math.factorial(10)", 3628800),
    ("What is 2^10?", "result = 2 ** 10", 1024),
    ("Sum the numbers from 1 to 100", "result = sum(range(1, 101))", 5050),
    ("Reverse the string 'hello'", "result = 'hello'[::-1]", "olleh"),
    ("Calculate 5 * 5", "5 * 5", 25),
    (
        "Find all even numbers in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]",
        "result = [number for number in range(1, 11) if number % 2 == 0]",
        [2, 4, 6, 8, 10],
    ),
    ("Square each number in [1, 2, 3, 4, 5]", "result = [n * n for n in [1, 2, 3, 4, 5]]", [1, 4, 9, 16, 25]),
    (
        "Calculate the average of [10, 20, 30, 40, 50]",
        "import statistics\nresult = statistics.fmean([10, 20, 30, 40, 50])",
        30.0,
    ),
    (
        "From this data: {'name': 'Alice', 'age': 25, 'city': 'NYC'}, extract the age",
        "result = {'name': 'Alice', 'age': 25, 'city': 'NYC'}['age']",
        25,
    ),
    (
        "Convert to uppercase keys: {'name': 'Alice', 'role': 'engineer'}",
        "result = {key.upper(): value for key, value in {'name': 'Alice', 'role': 'engineer'}.items()}",
        {"NAME": "Alice", "ROLE": "engineer"},
    ),
    (
        f"Parse this JSON and find the average score: {json.dumps(USERS)}",
        f"import json\nscores = [user['score'] for user in json.loads('''{json.dumps(USERS)}''')]\n"
        "result = sum(scores) / len(scores)",
        274 / 3,
    ),
    (
        "List the numbers from 1 to 20, keep the primes, and calculate their sum",
        "numbers = range(1, 21)\nprimes = [n for n in numbers if n > 1 and all(n % d for d in range(2, n))]\n"
        "result = sum(primes)",
        77,
    ),
    (
        "Implement the Fibonacci sequence up to the 10th number",
        "result = [0, 1]\nwhile len(result) < 10:\n    result.append(result[-1] + result[-2])",
        [0, 1, 1, 2, 3, 5, 8, 13, 21, 34],
    ),
    (
        f"Mean, median and mode (if it exists) of {SCORES}, as a dictionary",
        f"import statistics\nfrom collections import Counter\nscores = {SCORES}\n"
        "(top, count), *_ = Counter(scores).most_common(1)\n"
        "result = {'mean': round(statistics.mean(scores), 2), 'median': statistics.median(scores),\n"
        "          'mode': top if count > 1 else None}",
        {"mean": round(statistics.mean(SCORES), 2), "median": 88, "mode": None},
    ),
    ("import math\nresult = math.sqrt(16)", "import math\nresult = math.sqrt(16)", 4.0),
    ("The JSON of {'key': 'value'}", "import json\nresult = json.dumps({'key': 'value'})", '{"key": "value"}'),
]


@pytest.mark.parametrize(("prompt", "code", "value"), QUESTIONS, ids=[prompt[:40] for prompt, _, _ in QUESTIONS])
async def test_a_question_is_answered_by_what_the_code_computes(
    prompt: str, code: str, value: Any, restricted: Sandbox
) -> None:
    client = model(code)
    answer = await execute_code(prompt, model=client, sandbox=restricted)
    assert (answer["success"], answer["result"], answer["error"]) == (True, value, None)
    assert type(answer["result"]) is type(value)
    assert answer["code"] == code
    assert asked(client, 0) == [("User", prompt)]


async def test_the_present_is_the_real_one() -> None:
    before = datetime.now(UTC).year
    client = model("from datetime import datetime, timezone\nresult = datetime.now(timezone.utc).year")
    assert (await execute_code("Which year is it?", model=client))["result"] in {before, datetime.now(UTC).year}


async def test_the_answer_is_a_plain_dict_with_these_facts() -> None:
    client = ReplayChatCompletionClient([python("import sys\nprint('seen')\nresult = 1")], model_info=None)
    async with Sandbox() as open_to_all:
        answer = await execute_code("Do it.", model=client, sandbox=open_to_all)
    usage = answer["usage"]
    assert type(answer) is dict
    assert json.loads(json.dumps(answer)) == {
        "success": True,
        "result": 1,
        "result_is_repr": False,
        "code": "import sys\nprint('seen')\nresult = 1",
        "error": None,
        "outcome": "ok",
        "stdout": "seen\n",
        "stderr": "",
        "truncated": False,
        "attempts": 1,
        "usage": usage,
    }
    used = client.total_usage()
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (used.prompt_tokens, used.completion_tokens)
    assert usage["total_tokens"] == sum(used.__dict__.values()) > 0


# --- Which value counts ---


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("print('hello world')", None),
        ("result = [3, 1, 2]\nsorted(result)", [3, 1, 2]),
        ("result = None\n5", None),
        ("def work():\n    result = 1\n    return result + 1\n\nwork()", 2),
        ("result = 3\nraise SystemExit", 3),
        ("result = {1: 'a', (2, 3): {4}}", {1: "a", (2, 3): {4}}),
        ("result = {'tags': {'a'}}", {"tags": {"a"}}),
        ("result = (1, 2)", (1, 2)),
        ("from fractions import Fraction\nresult = [Fraction(1, 3)]", [Fraction(1, 3)]),
        ("result = \"'quoted'\"", "'quoted'"),
        ("result = 2 ** 100", 2**100),
    ],
)
async def test_the_variable_counts_and_then_the_last_expression(code: str, value: Any, restricted: Sandbox) -> None:
    answer = await execute_code("Do it.", model=model(code), sandbox=restricted)
    assert (answer["success"], answer["result"], answer["result_is_repr"]) == (True, value, False)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("from fractions import Fraction\nresult = [Fraction]", "[<class 'fractions.Fraction'>]"),
        ("result = list(range(1_000_000))", "[0, 1, 2, 3, "),
        ("class Odd:\n    def __repr__(self): return '(' * 9000\nresult = Odd()", "((("),
    ],
    ids=["no data", "too large", "no repr of data"],
)
async def test_a_value_that_is_no_data_is_told_as_such(code: str, text: str, restricted: Sandbox) -> None:
    answer = await execute_code("Do it.", model=model(code), sandbox=restricted)
    assert answer["success"]
    assert answer["result_is_repr"] is True
    assert answer["result"].startswith(text)


async def test_nan_is_a_number() -> None:
    answer = await execute_code("Do it.", model=model("result = float('nan')"))
    assert math.isnan(answer["result"])
    assert answer["result_is_repr"] is False


# --- What counts as code ---


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("```\nresult = 42\n```", "result = 42"),
        ("```python\nx = 40\n```\nand then\n```py\nresult = x + 2\n```", "x = 40\n\nresult = x + 2"),
        ("```\n{'no': 'code'}\n```\n```python\nresult = 42\n```\n```json\n{}\n```", "result = 42"),
        ("```python no-run\nresult = 41\n```\n```python\nresult = 42\n```", "result = 42"),
        ("<execute>\nresult = 42\n</execute>", "result = 42"),
    ],
    ids=["without a label", "two blocks", "beside data", "not to be run", "in a tag"],
)
async def test_the_python_of_an_answer_is_run(reply: str, code: str, restricted: Sandbox) -> None:
    client = ReplayChatCompletionClient([reply], model_info=None)
    answer = await execute_code("Do it.", model=client, sandbox=restricted)
    assert (answer["result"], answer["code"], answer["attempts"]) == (42, code, 1)


# --- The sandbox ---


async def test_nothing_is_left_of_a_call() -> None:
    before = children()
    async with Sandbox(policy="restricted") as shared:
        during = children() - before
        answer = await execute_code("Do it.", model=model("result = 1"), sandbox=shared)
        assert during
        assert children() - before == during
        assert answer["success"]
    assert (await execute_code("Do it.", model=model("result = 1")))["success"]
    assert children() - before == set()


async def test_calls_that_share_a_sandbox_share_no_variables() -> None:
    async with Sandbox(policy="restricted") as shared:
        first = await execute_code("Do it.", model=model("result = secret = 1"), sandbox=shared)
        second = await execute_code("Do it.", model=model("result = secret"), sandbox=shared, max_retries=0)
        assert (await shared.run("6 * 7")).value == 42
    assert first["success"]
    assert second["error"] == "NameError: name 'secret' is not defined (line 1)"


async def test_a_shared_sandbox_keeps_its_own_policy() -> None:
    async with Sandbox() as shared:
        answer = await execute_code("Do it.", model=model("import os\nresult = os.sep"), sandbox=shared)
    assert answer["result"] == "/"


def test_the_import_is_light() -> None:
    code = "import sys, coderoom; print([n for n in sys.modules if n.startswith('autogen')], 'execute_code' in "
    done = subprocess.run([sys.executable, "-c", f"{code}dir(coderoom))"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"
    assert coderoom.execute_code is execute_code

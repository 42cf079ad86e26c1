"""`Sandbox(policy="restricted")` by itself, for whoever has the code already and wants no model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.sandbox import Limits, Sandbox


@pytest.fixture(scope="module")
async def restricted() -> AsyncIterator[Sandbox]:
    async with Sandbox(policy="restricted") as sandbox:
        yield sandbox


async def test_what_is_known_of_a_run(restricted: Sandbox) -> None:
    code = "print('adding')\nresult = sum(range(1, 1001))"
    ran = await restricted.run(code)
    assert (ran.success, ran.result, ran.code, ran.error, ran.stdout) == (True, 500500, code, None, "adding\n")


async def test_without_the_variable_there_is_no_result(restricted: Sandbox) -> None:
    ran = await restricted.run("print(42)")
    assert (ran.success, ran.result, ran.stdout) == (True, None, "42\n")


async def test_the_variable_can_be_deleted(restricted: Sandbox) -> None:
    async with restricted.session() as session:
        await session.run("result = 1")
        ran = await session.run("del result")
    assert (ran.success, ran.result) == (True, None), ran.error


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("import math\nresult = math.sqrt(16)", 4.0),
        ("import random\nresult = random.Random(1).random() < 1", True),
        ("import statistics\nresult = statistics.median([1, 5, 3])", 3),
        ("import json\nresult = json.dumps({'key': 'value'})", '{"key": "value"}'),
        ("import re\nresult = re.findall(r'\\d+', 'a1b22')", ["1", "22"]),
        ("import string\nresult = string.digits", "0123456789"),
        ("from datetime import datetime\nresult = datetime(2025, 1, 31).isoformat()", "2025-01-31T00:00:00"),
        ("from collections import Counter\nresult = Counter('abca').most_common(1)", [("a", 2)]),
        ("import itertools\nresult = list(itertools.accumulate([1, 2, 3]))", [1, 3, 6]),
        ("import functools, operator\nresult = functools.reduce(operator.mul, [1, 2, 3, 4])", 24),
        ("import copy\nold = [[1]]\nnew = copy.deepcopy(old)\nnew[0].append(2)\nresult = old", [[1]]),
    ],
    ids=lambda value: value.split()[1] if isinstance(value, str) and " " in value else "",
)
async def test_a_harmless_module_is_there(restricted: Sandbox, code: str, value: object) -> None:
    ran = await restricted.run(code)
    assert (ran.success, ran.result) == (True, value), ran.error


@pytest.mark.parametrize(
    ("code", "name"),
    [
        *((f"import {module}", module) for module in ("os", "sys", "io", "pathlib", "socket", "urllib", "requests")),
        ("from urllib.request import urlopen", "urllib.request"),
        *((f"import {module}", module) for module in ("subprocess", "multiprocessing")),
        ("open('config.txt').read()", "open"),
        ("eval('1+1')", "eval"),
        ("exec('x = 1')", "exec"),
        ("compile('1', 'x', 'eval')", "compile"),
        ("__import__('os').system('ls')", "__import__"),
    ],
)
async def test_what_is_forbidden_is_named_and_not_run(restricted: Sandbox, code: str, name: str) -> None:
    ran = await restricted.run(f"print('ran')\n{code}\nresult = 1")
    assert (ran.success, ran.result, ran.outcome, ran.stdout) == (False, None, "rejected", "")
    assert f"`{name}` is not allowed" in str(ran.error)


@pytest.mark.parametrize("where", ["limits", "run"])
async def test_time_is_limited(where: str) -> None:
    limits, timeout = (Limits(wall_seconds=0.5), None) if where == "limits" else (Limits(), 0.5)
    async with Sandbox(policy="restricted", limits=limits) as sandbox:
        ran = await sandbox.run("print('begun', flush=True)\nimport time\ntime.sleep(60)\nresult = 1", timeout=timeout)
    assert (ran.success, ran.result, ran.outcome, ran.stdout) == (False, None, "timeout", "begun\n")
    assert "stopped after 0.5 seconds" in str(ran.error)


async def test_output_is_limited() -> None:
    async with Sandbox(policy="restricted", limits=Limits(output_bytes=2000)) as sandbox:
        ran = await sandbox.run("print('a' * 100_000)\nresult = 1")
    assert (ran.success, ran.result, ran.truncated, ran.limit) == (True, 1, True, "output")
    assert ran.output_size == 100_001
    assert 1000 < len(ran.stdout) < 2100
    assert ran.stdout.startswith("aaa")
    assert "characters left out" in ran.stdout


async def test_an_error_is_told_with_its_line(restricted: Sandbox) -> None:
    ran = await restricted.run("values = [1]\nresult = values[3]")
    assert (ran.success, ran.result, ran.outcome) == (False, None, "error")
    assert ran.error is not None
    assert (ran.error.type, ran.error.message, ran.error.line) == ("IndexError", "list index out of range", 2)
    assert "result = values[3]" in str(ran.error)

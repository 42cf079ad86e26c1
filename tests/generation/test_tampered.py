"""Entries of the cache that somebody has changed give no false success, and harm no later work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coderoom.generation import AICodeGenerator, Solution, freeze, read_specs, read_tests
from coderoom.sandbox import Sandbox

from .examples import in_database
from .scripted import ScriptedModel, function, test

RIGHT = "def double(x):\n    return 2 * x\n"
WORDS = ([function("double")], {"double": [test(f"{x}", 2 * x, x=x) for x in (1, 2, 3)]}, {"double": RIGHT})
FLIPPING = "import random\n\n\ndef double(x):\n    return 2 * x if random.random() < 0.5 else x\n"


class Table:
    """Embeddings in which all instructions are similar."""

    name = "table"

    async def embed(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, 2.0] for _ in texts]


async def solve(sandbox: Sandbox, folder: Path, instruction: str = "Double.", **options: Any) -> Solution:
    generator = AICodeGenerator(ScriptedModel(*WORDS), sandbox=sandbox, cache_dir=folder, **options)
    return await generator.generate_solution(instruction)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the solution in a cache."""
    [(content,)] = in_database(folder, "SELECT content FROM solutions")
    data = json.loads(content)
    change(data)
    in_database(folder, "UPDATE solutions SET content = ?", json.dumps(data))


def other_code(code: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["implementations"].update(double=code)


def other_tests(data: dict[str, Any]) -> None:
    data["tests"]["double"] = [test("0", 1, x=1), test("1", 2, x=2), test("2", 3, x=3)]
    tests = read_tests(data["tests"], read_specs(data["function_specs"]))
    data.update(tests_hash=freeze(tests).hash, implementations={"double": "def double(x):\n    return x\n"})
    data["test_results"] = [{**each, "test": str(number)} for number, each in enumerate(data["test_results"])]


TAMPERED: dict[str, Callable[[dict[str, Any]], None]] = {
    "wrong code": other_code("def double(x):\n    return x\n"),
    "code that ends the process": other_code("import os\nos._exit(0)\n"),
    "code for these tests": other_code("def double(x):\n    return 2 * x if x in (1, 2) else x\n"),
    "code that answers at random": other_code(FLIPPING),
    "no code": other_code(""),
    "no tests": lambda data: data.update(tests={}, test_results=[], tests_hash=""),
    "other tests under the same hash": lambda data: data["tests"]["double"][0].update(expected_output=7),
    "another function": lambda data: data["function_specs"][0].update(name="triple"),
    "a result that failed": lambda data: data["test_results"][0].update(passed=False),
    "a field of another type": lambda data: data.update(implementations=[RIGHT]),
    "a field too many": lambda data: data.update(trusted=True),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.slow if name in ("no code", "another function", "a field too many") else ()
        )
        for name in TAMPERED
    ],
)
async def test_a_solution(sandbox: Sandbox, tmp_path: Path, name: str) -> None:
    assert (await solve(sandbox, tmp_path)).all_tests_passed
    rewrite(tmp_path, TAMPERED[name])
    again = await solve(sandbox, tmp_path)
    assert (again.all_tests_passed, again.cached, again.implementations) == (True, False, {"double": RIGHT})
    assert (await solve(sandbox, tmp_path)).cached, "the right one has taken its place"


async def test_a_solution_that_fits_other_tests_is_still_what_its_tests_say(sandbox: Sandbox, tmp_path: Path) -> None:
    await solve(sandbox, tmp_path)
    rewrite(tmp_path, other_tests)
    again = await solve(sandbox, tmp_path)
    values = [(each.inputs["x"], each.expected_output) for each in again.tests["double"]]
    assert (again.cached, values) == (True, [(1, 1), (2, 2), (3, 3)])


@pytest.mark.parametrize(
    "vector",
    [b"123", "text", b"\xff" * 16, *(pytest.param(each, marks=pytest.mark.slow) for each in (b"", 7, bytes(16)))],
    ids=repr,
)
async def test_a_vector(sandbox: Sandbox, tmp_path: Path, vector: Any) -> None:
    await solve(sandbox, tmp_path, embeddings=Table())
    in_database(tmp_path, "UPDATE solutions SET vector = ?", vector)
    other = await solve(sandbox, tmp_path, "Double it.", embeddings=Table())
    assert (other.all_tests_passed, other.cached) == (True, False)

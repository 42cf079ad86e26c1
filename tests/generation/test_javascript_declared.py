"""A declared type says which integers are BigInts and which dicts are Maps."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from coderoom.generation import AICodeGenerator, JavaScriptLanguage
from coderoom.sandbox import Sandbox

from .scripted import ScriptedModel, function, test

BIG = {"$bigint": "5"}


@pytest.mark.parametrize(
    ("declared", "data", "made"),
    [
        ("number", 5, 5),
        ("bigint", 5, BIG),
        ("bigint", True, True),
        ("Promise<bigint | null>", 5, BIG),
        ("number | null | bigint", 5, 5),
        ("a BigInt", 5, BIG),
        ("bigint[][]", [[5]], [[BIG]]),
        ("Array<bigint>", [5, "x"], [BIG, "x"]),
        ("array of BigInts", [5], [BIG]),
        ("[number, bigint]", [5, 5], [5, BIG]),
        ("tuple[bigint, ...]", {"$tuple": [5, 5]}, {"$tuple": [BIG, BIG]}),
        ("{ a: number; b: bigint }", {"a": 5, "b": 5}, {"a": 5, "b": BIG}),
        ("Record<string, bigint>", {"a": 5}, {"a": BIG}),
        ("object", {"a": 5}, {"a": 5}),
        ("dict[str, int]", {}, {}),
        ("Map<string, number>", {"a": 5}, {"$map": [["a", 5]]}),
        ("Map<string, Map<string, bigint>> | undefined", {"a": {}}, {"$map": [["a", {"$map": []}]]}),
        ("Map of names to ages", {"a": 5}, {"$map": [["a", 5]]}),
        ("Map<number, string>[]", [{"5": "a"}], [{"$map": [[5, "a"]]}]),
        ("dict[int, str]", {}, {"$map": []}),
        ("dict[int, int]", {"5": 5, "x": 5}, {"$map": [[5, 5], ["x", 5]]}),
        ("Map", {"$dict": 5}, {"$dict": 5}),
    ],
)
def test_values_are_of_the_declared_type(declared: str, data: Any, made: Any) -> None:
    assert JavaScriptLanguage().as_declared(data, declared) == made


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")
@pytest.mark.slow
async def test_a_declared_type_is_what_callers_get(node_sandbox: Sandbox) -> None:
    types = {"power": "bigint", "ages": "Map<string, number>", "five": "int", "table": "dict[str, int]"}
    specs = [{**function(name), "outputs": {"type": kind}} for name, kind in types.items()]
    tests = {"power": [test("one", 4, x=2)], "ages": [test("one", {"a": 1}, x=1)]}
    tests |= {"five": [test("one", 5, x=1)], "table": [test("one", {"a": 1}, x=1)]}
    code = {
        "power": "function power(x) { return 2n ** BigInt(x) }",
        "ages": "function ages(x) { return new Map([['a', x]]) }",
        "five": "function five(x) { return 5n }",
        "table": "function table(x) { return new Map([['a', x]]) }",
    }
    fenced = {name: f"```javascript\n{each}\n```" for name, each in code.items()}
    model = ScriptedModel(specs, tests, fenced)
    generator = AICodeGenerator(model, sandbox=node_sandbox, cache=False, language="javascript", max_attempts=1)
    solution = await generator.generate_solution("Numbers.")
    assert {each.function: each.passed for each in solution.test_results} == {
        "power": True, "ages": True, "five": False, "table": False,
    }  # fmt: skip

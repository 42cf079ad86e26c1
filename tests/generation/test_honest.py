"""Right code of every form that real models write is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.generation import AICodeGenerator
from coderoom.sandbox import Sandbox

from .honest import TASKS, Task
from .scripted import ScriptedModel

QUICK = ("a bank account", "an example at the end")


def model_of(task: Task) -> ScriptedModel:
    inputs = [{"name": name, "type": kind} for name, kind in task.inputs.items()]
    spec = {"name": task.name, "purpose": task.title, "inputs": inputs, "dependencies": [], "complexity": "medium",
            "outputs": {"type": task.output, "description": ""}}  # fmt: skip
    tests = []
    for number, each in enumerate(task.tests):
        fields: dict[str, Any] = dict(each)
        inputs_of = dict(zip(task.inputs, fields.pop("values"), strict=True))
        tests.append({"name": f"case {number}", "inputs": inputs_of, **fields})
    return ScriptedModel([spec], {task.name: tests}, {task.name: task.code})


def test_there_are_fifty() -> None:
    assert len({task.title for task in TASKS}) == len(TASKS) >= 50


REST = (pytest.mark.slow, pytest.mark.no_cover)  # They go over the same lines.


@pytest.mark.parametrize(
    "task", [pytest.param(each, id=each.title, marks=() if each.title in QUICK else REST) for each in TASKS]
)
async def test_right_code_is_accepted_at_once(default_sandbox: Sandbox, task: Task) -> None:
    model = model_of(task)
    generator = AICodeGenerator(
        model, sandbox=default_sandbox, cache=False, max_attempts=1, strict=True, strength=False
    )
    solution = await generator.generate_solution(f"Write {task.title}.")
    assert solution.all_tests_passed, [*solution.missing, *solution.warnings]
    assert len(solution.test_results) == len(task.tests)
    assert model.count("tests", task.name) == 1, model.questions[-2:]

"""Right code of every form that real models write is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from coderoom.generation import AICodeGenerator
from coderoom.sandbox import Sandbox

from .honest import TASKS, Task
from .scripted import ScriptedModel


def test_there_are_fifty() -> None:
    assert len({task.title for task in TASKS}) == len(TASKS) >= 50


def model_of(tasks: Sequence[Task]) -> ScriptedModel:
    specs, tests = list[dict[str, Any]](), dict[str, list[dict[str, Any]]]()
    for task in tasks:
        inputs = [{"name": name, "type": kind} for name, kind in task.inputs.items()]
        specs.append({"name": task.name, "purpose": task.title, "inputs": inputs, "dependencies": [],
                      "complexity": "medium", "outputs": {"type": task.output, "description": ""}})  # fmt: skip
        tests[task.name] = []
        for number, each in enumerate(task.tests):
            fields: dict[str, Any] = dict(each)
            inputs_of = dict(zip(task.inputs, fields.pop("values"), strict=True))
            tests[task.name].append({"name": f"case {number}", "inputs": inputs_of, **fields})
    return ScriptedModel(specs, tests, {task.name: task.code for task in tasks})


QUICK = [task for task in TASKS if task.title in ("a bank account", "an example at the end")]
LATER = [task for task in TASKS if task not in QUICK]
REST = (pytest.mark.slow, pytest.mark.no_cover)  # They go over the same lines.


@pytest.mark.parametrize("tasks", [QUICK, *(pytest.param(LATER[n::6], marks=REST) for n in range(6))], ids=range(7))
async def test_right_code_is_accepted_at_once(default_sandbox: Sandbox, tasks: list[Task]) -> None:
    """Each program has several of the functions."""
    model = model_of(tasks)
    generator = AICodeGenerator(
        model, sandbox=default_sandbox, cache=False, max_attempts=1, strict=True, strength=False
    )
    solution = await generator.generate_solution("Write what is needed.")
    assert solution.all_tests_passed, [*solution.missing, *solution.warnings]
    assert len(solution.test_results) == sum(len(task.tests) for task in tasks)
    assert [model.count("tests", task.name) for task in tasks] == [1] * len(tasks), model.questions[-2:]

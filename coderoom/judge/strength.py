"""The evidence behind a pass: how many mutants of the code its tests kill, and generated inputs for its properties.

`measure` works with any kind of tests, by a function that says which mutants fail. `measure_files` judges each mutant
as any other code; for cases of functions, `Judge` runs each mutant in a fork.
"""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any

from coderoom._util.text import counted
from coderoom.judge.cases import Data, FunctionTest
from coderoom.judge.mutants import Mutant, Mutants
from coderoom.judge.other_values import other_values
from coderoom.judge.session import Verdict
from coderoom.judge.source import names_in, parsed
from coderoom.judge.values import canonical

_INPUTS = 24
_LEAST_SECONDS, _TIMES = 1.0, 4  # The time of a mutant, in seconds and in times of the code.


class Survivor(Data):
    """A mutant that passes all tests.

    Attributes:
        function: The function, or the file; empty if there is one only.
        line: The line, counted from 1.
        change: What stands there, and for what.
    """

    function: str
    line: int
    change: str

    def __str__(self) -> str:
        return f"{self.function + ' ' if self.function else ''}line {self.line} {self.change}"


class Strength(Data):
    """The evidence behind a pass. It says something about the tests, and not about the code.

    Attributes:
        mutants: How many mutants the tests were run with.
        killed: How many of them failed a test.
        survivors: The others.
        unreached: How many more were left out, since no test runs their lines.
        lines_unreached: These lines; with several functions, of all of them.
        equivalent: How many more were left out, since they mean the same.
        possible: How many there could have been.
        inputs: How many generated inputs the properties were tried with that use all inputs of their test. Inputs for
            which the code raises are not counted.
        held: For how many of them the property holds, in each run.
        runs: How many runs that took.
        counterexample: An input for which one does not hold; empty if there is none.
        seconds: How long it took.
        unavailable: Why there is no such evidence; empty if there is.
    """

    mutants: int = 0
    killed: int = 0
    survivors: tuple[Survivor, ...] = ()
    unreached: int = 0
    lines_unreached: tuple[int, ...] = ()
    equivalent: int = 0
    possible: int = 0
    inputs: int = 0
    held: int = 0
    runs: int = 0
    counterexample: str = ""
    seconds: float = 0.0
    unavailable: str = ""

    @property
    def rate(self) -> float:
        """The share of the mutants that the tests kill; those that they do not reach count as alive."""
        whole = self.mutants + self.unreached
        return self.killed / whole if whole else 1.0

    def __str__(self) -> str:
        return self.in_words(5)

    def in_words(self, most: int) -> str:
        """The evidence in a sentence, with at most so many survivors and lines."""
        if self.unavailable:
            return f"no evidence: {self.unavailable}"
        text = f"{self.killed} of {counted(self.mutants, 'mutant')} killed"
        if self.survivors:
            named = [str(each) for each in self.survivors[:most]]
            more = len(self.survivors) - len(named)
            text += f", {len(self.survivors)} alive: {', '.join(named)}{f' and {more} more' if more else ''}"
        if self.unreached:
            lines = ", ".join(map(str, self.lines_unreached[:most]))
            text += f"; {self.unreached} more in lines that no test runs ({lines})"
        if self.inputs:
            text += f"; properties hold for {self.held} of {counted(self.inputs, 'generated input')}"
            text += f" in {counted(self.runs, 'run')}{self.counterexample and f', not for {self.counterexample}'}"
        return text

    def __add__(self, other: Strength) -> Strength:
        """The evidence for both."""
        own, more = self.model_dump(), other.model_dump()
        texts = ("counterexample", "unavailable")
        return Strength(**{name: own[name] or more[name] if name in texts else own[name] + more[name] for name in own})


def generated_inputs(test: FunctionTest, function: str, source: str) -> list[dict[str, Any]]:
    """Inputs of the types that a function declares, or that the inputs of a test have, for its property.

    There are none if the property does not use all inputs: then it is about the inputs of the test.
    """
    if test.property is None or test.has_steps or not test.inputs or not {*test.inputs} <= names_in(test.property):
        return []
    nodes = [each for each in ast.walk(parsed(source)) if getattr(each, "name", "") == function]
    arguments = getattr(nodes[-1], "args", None) if nodes else None
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments is not None else []
    declared = {each.arg: ast.unparse(each.annotation) for each in several if each.annotation is not None}
    values = {
        name: other_values(declared.get(name, "")) or other_values(_type_of(data)) or (data,)
        for name, data in test.inputs.items()
    }
    chance = Random(0)
    found = [{name: chance.choice(each) for name, each in values.items()} for _ in range(_INPUTS)]
    return [*{canonical(each): each for each in found}.values()]


def _type_of(data: Any) -> str:
    """The type of plain data."""
    if isinstance(data, list):
        return f"list[{_type_of(data[0])}]" if data else "list[int]"
    return type(data).__name__ if isinstance(data, bool | int | float | str) else ""


Kill = Callable[[Sequence[Mutant]], Awaitable[list[bool]]]
"""Runs the tests with mutants, and says of each whether a test fails."""


async def measure(
    mutants: Mutants,
    kill: Kill,
    *,
    name: str = "",
    reached: Collection[tuple[int, int]] | None = None,
    most: int,
    seconds: float,
    at_once: int = 1,
) -> Strength:
    """Measure how many mutants of code its tests kill.

    Args:
        mutants: The mutants of code that passes its tests.
        kill: What runs the tests.
        name: The name of the function or file.
        reached: The places of the statements that the tests run; `None`: not known. Mutants of others would live.
        most: The most mutants. They are spread evenly over the lines.
        seconds: After this time, no more mutants are tried than the first ones.
        at_once: How many `kill` gets at a time.
    """
    began = time.monotonic()
    survivors, unreached = list[Survivor](), list[Mutant]()
    tried = killed = 0
    waiting = iter(mutants)
    while tried < most and (not tried or time.monotonic() - began < seconds):
        chosen: list[Mutant] = []
        for mutant in waiting:
            if reached is None or mutant.place in reached:
                chosen.append(mutant)
            else:
                unreached.append(mutant)
            if len(chosen) >= min(at_once, most - tried):
                break
        if not chosen:
            break
        for mutant, died in zip(chosen, await kill(chosen), strict=True):
            tried, killed = tried + 1, killed + died
            survivors += [] if died else [Survivor(function=name, line=mutant.line, change=mutant.change)]
    return Strength(
        mutants=tried,
        killed=killed,
        survivors=tuple(sorted(survivors, key=lambda each: each.line)),
        unreached=len(unreached),
        lines_unreached=tuple(sorted({each.line for each in unreached})),
        equivalent=mutants.equivalent,
        possible=mutants.count,
        seconds=time.monotonic() - began,
    )


async def measure_files(
    code: Mapping[str, str],
    run: Callable[[Mapping[str, str], float | None], Awaitable[list[Verdict]]],
    *,
    most: int,
    seconds: float,
    at_once: int,
) -> Strength:
    """Measure how many mutants of files a kind of tests kills. Only tests that the files pass count.

    Args:
        code: The files of the code, by name.
        run: What runs the tests with files, within a time limit if it is given one.
        most: The most mutants of all files.
        seconds: After this time, no more mutants are tried.
        at_once: How many run at a time.
    """
    began = time.monotonic()
    passed = {each.test for each in await run(code, None) if each.passed}
    limit = max(_LEAST_SECONDS, _TIMES * (time.monotonic() - began))
    names = [name for name in code if name.endswith(".py")]
    if not passed or not names:
        return Strength(unavailable="no test passes" if names else "there are mutants of Python only")
    found = Strength()
    for number, name in enumerate(names):

        async def fails(mutant: Mutant, name: str = name) -> bool:
            verdicts = await run({**code, name: mutant.source}, limit)
            return not passed <= {each.test for each in verdicts if each.passed}

        async def kill(mutants: Sequence[Mutant]) -> list[bool]:
            return [*await asyncio.gather(*map(fails, mutants))]

        left, files = seconds - (time.monotonic() - began), len(names) - number
        found += await measure(
            Mutants(code[name]),
            kill,
            name=name if len(names) > 1 else "",
            most=-(-(most - found.mutants) // files),
            seconds=left / files,
            at_once=at_once,
        )
    return found

"""Run random programs that give two answers depending on their run. None of them may pass.

python benchmarks/two_answers.py [--wall NAME] [--programs N] [--seed N]

Each program computes one of some functions, but gives a wrong answer if a condition about the run is true, or if it is
false. All programs of one call of the runner have conditions of the same kind, since the runner repeats a program as
often as the most variable function of it may need.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from time import perf_counter

from coderoom.generation import TestRunner, freeze, make_sandbox, read_specs, read_tests
from coderoom.sandbox import Sandbox

# Each is true in some runs and false in others. In braces: numbers of its own for each program.
CONDITIONS: dict[str, dict[str, str]] = {
    "process": {
        "an address": "id(object()) >> {low} & 1",
        "the hash of a text": "hash('{word}') >> {bit} & 1",
        "the order of a set": "list({{'{word}', 'two'}})[0] == 'two'",
        "the text of an object": "int(repr(Thing())[-5], 16) & 1",
    },
    "call": {
        "random numbers": "random.random() < {share}",
        "random choices": "random.choice([True, False])",
        "random bits": "random.getrandbits(8) >> {small} & 1",
        "random order": "random.sample(range(10), 10)[0] % 2",
    },
    "clock": {
        "microseconds": "time.perf_counter_ns() // 1000 % 2",
        "the time of day": "time.time_ns() // {slow} % 2",
        "bytes of the system": "os.urandom(1)[0] < {byte}",
        "the number of the process": "os.getpid() % 2",
        "the number of its parent": "os.getppid() % {divisor} == 0",
        "page faults": "resource.getrusage(resource.RUSAGE_SELF).ru_minflt < 400",
        "the type of the stream": "type(sys.stdout.buffer).__name__ == 'Printed'",
        "the number of calls": "len(SEEN) == {few}",
        "the depth of the stack": "depth() < 9",
        "collections": "gc.get_count()[0] % 2",
    },
}
IMPORTS = {"process": "", "call": "import random\n", "clock": "import gc, os, random, resource, sys, time\n"}
HELPERS = {
    "SEEN": "SEEN = []\n",
    "Thing": "class Thing:\n    pass\n",
    "depth": "def depth():\n    frame, count = sys._getframe(), 0\n    while frame:\n"
    "        frame, count = frame.f_back, count + 1\n    return count\n",
}
FUNCTIONS = {
    "n % 2 == 0": (lambda n: n % 2 == 0, "not (n % 2 == 0)"),
    "n * n + 1": (lambda n: n * n + 1, "n * n"),
    "list(range(n))": (lambda n: list(range(n)), "list(range(n + 1))"),
    "str(n + 30)[::-1]": (lambda n: str(n + 30)[::-1], "str(n + 30)"),
}
TESTS = 3
"""Tests of each function; fewer are not accepted without a warning."""


def programs(kind: str, count: int, chance: random.Random) -> Iterator[tuple[str, str, str, list[object]]]:
    """Names, conditions, sources and expected answers of functions."""
    for number in range(count):
        condition = chance.choice([*CONDITIONS[kind]])
        text = CONDITIONS[kind][condition].format(
            low=chance.choice([12, 14, 16, 18]),
            bit=chance.randrange(30),
            small=chance.randrange(8),
            few=chance.randrange(1, 3),
            divisor=chance.randrange(2, 4),
            word=chance.choice(["one", "red", "north", "x" * 20]),
            share=chance.choice([0.1, 0.3, 0.5, 0.7, 0.9]),
            byte=chance.choice([64, 128, 192]),
            slow=chance.choice([1_000, 10_000, 100_000, 1_000_000]),
        )
        right = chance.choice([*FUNCTIONS])
        compute, wrong = FUNCTIONS[right]
        one, other = (right, wrong) if chance.random() < 0.5 else (wrong, right)
        if condition in ("the number of calls", "the type of the stream", "page faults", "the depth of the stack"):
            one, other = wrong, right  # Otherwise, the wrong answer would be given only once, or in no run of a test.
        name = f"f{number}"
        helpers = "".join(each for word, each in HELPERS.items() if word in text)
        body = "".join(f"    {line}\n" for line in (*(["SEEN.append(n)"] if "SEEN" in text else []),
                                                    f"if {text}:", f"    return {one}", f"return {other}"))  # fmt: skip
        if "SEEN" in text or "Thing" in text or "depth" in text:
            helpers = helpers.replace("SEEN", f"SEEN{number}").replace("Thing", f"Thing{number}")
            helpers = helpers.replace("depth", f"depth{number}")
            for word in HELPERS:
                body = body.replace(word, f"{word}{number}")
        yield name, condition, f"{IMPORTS[kind]}{helpers}def {name}(n):\n{body}", [compute(n) for n in range(TESTS)]


async def passing(sandbox: Sandbox, kind: str, count: int, chance: random.Random) -> list[tuple[str, str]]:
    """Run programs; return the conditions and sources of those that passed."""
    made = [*programs(kind, count, chance)]
    specs = read_specs([{"name": name, "purpose": "p", "inputs": [{"name": "n", "type": "int"}],
                         "outputs": {"type": "Any"}} for name, *_ in made])  # fmt: skip
    tests = {
        name: [{"name": f"{n}", "inputs": {"n": n}, "expected_output": value} for n, value in enumerate(expected)]
        for name, _, _, expected in made
    }
    sources = {name: source for name, _, source, _ in made}
    results = await TestRunner(sandbox, strict=True).run(sources, freeze(read_tests(tests, specs)))
    failed = {each.function for each in results if not each.passed}
    return [(condition, source) for name, condition, source, _ in made if name not in failed]


async def main(wall: str, count: int, seed: int, batch: int = 25) -> int:
    """Run the programs; return how many passed."""
    chance = random.Random(seed)
    found: list[tuple[str, str]] = []
    begin = perf_counter()
    async with make_sandbox(wall) as sandbox:
        print(f"wall {sandbox.wall}, {count} programs, seed {seed}", flush=True)
        done = 0
        while done < count:
            kind = [*CONDITIONS][done // batch % len(CONDITIONS)]
            number = min(batch, count - done)
            for condition, source in await passing(sandbox, kind, number, chance):
                found.append((condition, source))
                print(f"passed ({condition}):\n{source}", flush=True)
            done += number
            if not done % (batch * 12):
                print(f"{done} programs, {len(found)} passed, {perf_counter() - begin:.0f} s", flush=True)
    counts = ", ".join(f"{number} by {name}" for name, number in Counter(each for each, _ in found).items())
    print(f"{count} programs, {len(found)} passed{counts and ': ' + counts}, {perf_counter() - begin:.0f} s")
    return len(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wall", default="auto")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    raise SystemExit(bool(asyncio.run(main(arguments.wall, arguments.programs, arguments.seed))))

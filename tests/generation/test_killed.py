"""The generator's end in the middle of its work: what was answered is not asked again, and nobody is left behind."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ..support.openai_server import OpenAIServer, Request, Step
from ..support.processes import family, is_there
from .scripted import ScriptedModel, function, test

CHILD = """
import asyncio, sys
from coderoom.generation import AICodeGenerator, OpenAIModel, Solution, TestsRun

async def main(address, folder):
    generator = AICodeGenerator(OpenAIModel("slow", api_key="x", base_url=address), cache_dir=folder, max_attempts=4)
    async for item in generator.stream("Double a number, and double it again."):
        if isinstance(item, Solution):
            print("passed", item.all_tests_passed, item.cached, item.usage.replayed, flush=True)
        else:
            print(type(item).__name__, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
SPECS = [function("double"), function("four", needs=["double"])]
TESTS = {
    "double": [test("two", 4, x=2), test("zero", 0, x=0), test("minus", -6, x=-3)],
    "four": [test("one", 4, x=1), test("zero", 0, x=0), test("minus", -12, x=-3)],
}
SLOW = "import time\ndef double(x):\n    time.sleep(0.5)\n    return 3 * x"
CODE = {"double": SLOW, "four": "def four(x):\n    return double(x) + 1"}
REPAIR = {
    "double": {"wrong": "implementation", "reason": "so", "implementation": "def double(x):\n    return 2 * x"},
    "four": {"wrong": "implementation", "reason": "so", "implementation": "def four(x):\n    return double(double(x))"},
}
ALL = 1 + 2 + 2 + 2


class Counting:
    """Answers slowly, and counts what was asked and what was answered by the hash of it."""

    def __init__(self) -> None:
        self._model = ScriptedModel(SPECS, TESTS, CODE, REPAIR)
        self._lock = threading.Lock()
        self.asked: Counter[str] = Counter()
        self.steps: dict[str, tuple[str, str]] = {}

    def respond(self, request: Request) -> Step | str:
        with self._lock:
            text = hashlib.sha256(json.dumps(request.body, sort_keys=True).encode()).hexdigest()
            self.asked[text] += 1
            answer = self._model.respond(request)
            self.steps[text] = self._model.asked[-1]
        time.sleep(0.15)
        return answer


def start(server: OpenAIServer, folder: Path) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", CHILD, server.base_url, str(folder)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def kill_at(child: subprocess.Popen[str], event: str, number: int) -> None:
    """Wait for the child to tell so many events of a kind, and kill it; then nobody below it may be left."""
    assert child.stdout is not None
    for line in child.stdout:
        number -= line.strip() == event
        if number == 0:
            break
    assert number == 0
    below = family(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    end = time.monotonic() + 10
    while any(is_there(*each) for each in below.items()) and time.monotonic() < end:
        time.sleep(0.05)
    assert [each for each in below.items() if is_there(*each)] == []


@pytest.mark.slow
def test_it_goes_on_where_its_tests_ran_when_it_was_killed(tmp_path: Path) -> None:
    counting, answered = Counting(), 4
    with OpenAIServer(respond=counting.respond) as server:
        kill_at(start(server, tmp_path), "CodeWritten", 1)
        before = Counter(counting.asked)
        child = start(server, tmp_path)
        told, _ = child.communicate(timeout=90)
    passed: Any = told.splitlines()[-1].split()
    assert passed[:3] == ["passed", "True", "False"]
    assert int(passed[3]) >= answered
    assert len(counting.asked) == ALL
    again = {counting.steps[each] for each, count in counting.asked.items() if count > 1}
    assert len(again) <= sum(before.values()) - answered, "only what was on its way"


@pytest.mark.slow
def test_it_is_killed_again_and_again(tmp_path: Path) -> None:
    counting = Counting()
    with OpenAIServer(respond=counting.respond) as server:
        for number in (2, 6, 7):
            kill_at(start(server, tmp_path), "ModelAsked", number)
        told, _ = start(server, tmp_path).communicate(timeout=90)
        last, _ = start(server, tmp_path).communicate(timeout=90)
    assert told.splitlines()[-1] == f"passed True False {ALL}"
    assert last.splitlines()[-1].startswith("passed True True"), "now it comes from the cache"
    assert len(counting.asked) == ALL
    assert max(counting.asked.values()) <= 3, "what was on its way twice when the end came"

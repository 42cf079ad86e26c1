"""`coderoom solve` with branches is killed in their midst and resumed: it ends as the one that was not killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from coderoom.runs import Journal
from tests.support.commands import coderoom, environment
from tests.support.openai_server import OpenAIServer, Reply, Request
from tests.support.solving import SPECS, TESTS

KINDS = ("patch", "from scratch", "simplest", "by hand")
LEVELS = (("7", "7 * x", "2 * abs(x)", "x + 2"), ("0", "x + 21", "2 * max(x, 0)", "2 * x"))
"""What the branches return; the third one of the first level passes two tests, and the last one of the second all."""
CODES = ["x * x", *LEVELS[0], *LEVELS[1]]
ALL = 2 + len(CODES)


class Answers:
    """Answers each request by what it asks for, the first branches last, and kills a process at one of them."""

    def __init__(self, kill_at: int) -> None:
        self.asked = 0
        self.child: subprocess.Popen[bytes] | None = None
        self._kill_at = kill_at
        self._lock = threading.Lock()

    def respond(self, request: Request) -> Reply:
        text = str(request.messages[-1]["content"])
        with self._lock:
            self.asked += 1
            if self.asked == self._kill_at and self.child is not None:
                os.kill(self.child.pid, signal.SIGKILL)
        if "Name the functions" in text:
            return Reply(SPECS)
        if "Write the tests" in text:
            return Reply(TESTS)
        place = next((place for place, kind in enumerate(KINDS) if place and kind in text), 0)
        is_first = "tests pass" not in text
        code = CODES[0] if is_first else LEVELS["2 of its 3 tests" in text][place]
        program = f"def double(x):\n    return {code}"
        if is_first or place == 1:
            return Reply(f"~~~python\n{program}\n~~~", delay=0.1)
        answer = {"wrong": "implementation", "reason": "so", "implementation": program}
        return Reply(json.dumps(answer), delay=0.1 * (len(KINDS) - place))


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [0, 5, 11])
def test_it_ends_as_if_it_had_not_been_killed(tmp_path: Path, kill_at: int) -> None:
    answers = Answers(kill_at)
    with OpenAIServer(respond=answers.respond) as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test"}
        options = ["--journal", "journal", "--json"]
        how = ["--model", "openai:gpt-4o", "--branches", "4", "--max-attempts", "9", "--no-strength", *options]
        command = [sys.executable, "-m", "coderoom", "solve", "Double.", *how]
        child = subprocess.Popen(command, cwd=tmp_path, env=environment(env), stdout=subprocess.PIPE)
        answers.child = child
        told, _ = child.communicate(timeout=60)
        asked = known = answers.asked
        if kill_at:
            assert child.returncode == -signal.SIGKILL
            with closing(Journal(tmp_path / "journal")) as journal:
                known = sum(step.kind == "model" for step in journal.steps(journal.find("last").id))
            told = coderoom("resume", "last", *options, cwd=tmp_path, env=env).stdout.encode()
    solution = json.loads(told)
    assert answers.asked == ALL + asked - known, "what was answered is not asked again"
    attempts = solution["functions"][0]["attempts"]
    assert [each["code"].strip().rpartition("return ")[2] for each in attempts] == CODES
    names = [f"double {level}.{place}" for level in (1, 2) for place in (1, 2, 3, 4)]
    assert [each["branch"] for each in attempts] == ["", *names]
    assert solution["implementations"] == {"double": "def double(x):\n    return 2 * x"}
    shown = json.loads(coderoom("runs", "show", *options, cwd=tmp_path).stdout)
    assert [each["won"] for each in shown["branchings"]] == ["double 1.3", "double 2.4"]

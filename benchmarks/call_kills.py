"""Kill runs with SIGKILL while a call waits for a person, was just answered, or runs; resume them, and count.

python benchmarks/call_kills.py [--kills N] [--seed N]

Each run makes three calls of a function that writes, and a person at a real terminal is asked about each. A call must
be done once at most, and be done unless the code was told that this is not known. Each kill may cost one more question,
about the call that waited.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.openai_server import OpenAIServer

CALLS = 3
QUESTION = re.compile(r"Make this call\? y, n, n and why")
CODE = f"""```python
for number in range({CALLS}):
    try:
        print(pay(number))
    except RuntimeError as error:
        print(number, error)
```"""
PAY = '''def pay(number: int) -> str:
    """Pay somebody."""
    with open(os.environ["LEDGER"], "a") as ledger:
        print(f"begun {number}", file=ledger, flush=True)
        time.sleep(0.3)
        print(f"done {number}", file=ledger, flush=True)
    return f"paid {number}"
'''
TEAM = {
    "provider": "coderoom.teams.CodingTeam",
    "config": {
        "participants": [
            {
                "provider": "coderoom.agents.CodeActAgent",
                "config": {
                    "name": "payer",
                    "code_executor": {
                        "provider": "coderoom.executors.SandboxCodeExecutor",
                        "config": {"work_dir": "${CODEROOM_WORKSPACE}", "timeout": 3},
                    },
                    "tools": [
                        {
                            "provider": "autogen_core.tools.FunctionTool",
                            "config": {
                                "source_code": PAY,
                                "name": "pay",
                                "description": "Pay somebody.",
                                "global_imports": ["os", "time"],
                                "has_cancellation_support": False,
                            },
                        }
                    ],
                    "call_approval": {
                        "provider": "coderoom.approval.HumanApproval",
                        "config": {"timeout": None},
                    },
                    "call_rules": [{"function": "pay", "effect": "write"}],
                },
            }
        ],
        "max_turns": 1,
    },
}
MOMENTS = ("waits", "was answered", "runs")


class Run:
    """A `coderoom` process at a terminal, whose questions are answered with yes."""

    def __init__(self, folder: Path, server: OpenAIServer, *arguments: str) -> None:
        self.ledger = folder / "ledger"
        ours, theirs = pty.openpty()
        env = {
            **os.environ,
            "TERM": "xterm",
            "COLUMNS": "200",
            "OPENAI_API_KEY": "test",
            "OPENAI_BASE_URL": server.base_url,
            "CODEROOM_MODEL": "gpt-4o-2024-08-06",
            "CODEROOM_JOURNAL": str(folder / "journal.sqlite3"),
            "LEDGER": str(self.ledger),
        }
        command = [sys.executable, "-m", "coderoom", *arguments]
        self.process = subprocess.Popen(command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self._terminal, self._shown = ours, ""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self._terminal, 65_536):
                self._shown += data.decode(errors="replace")

    @property
    def shown(self) -> str:
        """What the terminal has shown, without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._shown)

    def asked(self) -> list[int]:
        """The calls that it has asked about, in their order; only whole questions count."""
        pieces = QUESTION.split(self.shown)[:-1]
        return [int(re.findall(r"pay\(number=(\d+)\)", piece)[-1]) for piece in pieces]

    def wait_for(self, what: Callable[[], bool]) -> bool:
        """Wait for something, or for the end of the process; return whether it came."""
        end = time.monotonic() + 60
        while not what():
            if self.process.poll() is not None or time.monotonic() > end:
                return what()
            time.sleep(0.002)
        return True

    def yes(self) -> None:
        """Answer a question."""
        os.write(self._terminal, b"y\n")

    def kill(self) -> None:
        """End the process as a failing machine does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reading.join(5)

    def finish(self) -> None:
        """Answer all questions until the end."""
        answered = 0
        while self.wait_for(lambda: len(self.asked()) > answered):  # noqa: B023 (it is awaited here)
            self.yes()
            answered += 1
        self.process.wait(60)
        self._reading.join(5)


@contextmanager
def a_room() -> Iterator[tuple[Path, OpenAIServer]]:
    """A folder with the team, and its model."""
    with tempfile.TemporaryDirectory() as name, OpenAIServer([CODE, *["It is paid."] * 2]) as server:
        (Path(name) / "team.json").write_text(json.dumps(TEAM))
        yield Path(name), server


def trial(seed: int) -> str:
    """Kill a run at a random moment, resume it, and return what is wrong, if anything."""
    choose = random.Random(seed)
    call, moment = choose.randrange(CALLS), choose.choice(MOMENTS)
    with a_room() as (folder, server):
        first = Run(folder, server, "run", "team.json", "Pay.", "--workspace", "work")
        for number in range(call + 1):
            if not first.wait_for(lambda number=number: len(first.asked()) > number):  # type: ignore[misc]
                return f"seed {seed}: no question {number}\n{first.shown}"
            if number < call or moment != "waits":
                first.yes()
        if moment == "runs":
            first.wait_for(lambda: first.ledger.exists() and f"begun {call}" in first.ledger.read_text())
        time.sleep(choose.uniform(0, {"waits": 0.5, "was answered": 0.1, "runs": 0.35}[moment]))
        first.kill()
        time.sleep(0.4)  # The function runs in the process, and ends with it.
        before = Counter(first.ledger.read_text().split("\n")) if first.ledger.exists() else Counter[str]()
        second = Run(folder, server, "resume")
        second.finish()
        ledger = Counter(first.ledger.read_text().split("\n"))
        asked = Counter(first.asked()) + Counter(second.asked())
        wrong = [f"call {number} was begun {ledger[f'begun {number}']} times" for number in range(CALLS)
                 if ledger[f"begun {number}"] > 1]  # fmt: skip
        unknown = [number for number in range(CALLS) if f"{number} pay() had begun with these arg" in second.shown]
        wrong += [f"call {number} was not done" for number in range(CALLS)
                  if not ledger[f"done {number}"] and number not in unknown]  # fmt: skip
        if sum(asked.values()) > CALLS + 1 or any(asked[number] > 1 + (number == call) for number in asked):
            wrong.append(f"asked {dict(asked)}")
        ended = "nothing is left to do" in second.shown  # It was killed after its end.
        if not ended and (second.process.returncode != 0 or "It is paid." not in second.shown):
            wrong.append("the resumed run did not end well")
        told = (
            f"seed {seed}, call {call} {moment}: asked {dict(asked)}, unknown {unknown}, done {dict(ledger - before)}"
        )
        print(told, flush=True)
        return f"{told}\n{wrong}\n{second.shown}" if wrong else ""


def main(about: str | None = __doc__, one: Callable[[int], str] = trial) -> None:
    """Make one trial for each seed, and print what is wrong in how many runs."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = [found for number in range(arguments.kills) if (found := one(arguments.seed * 1000 + number))]
    print("\n".join(wrong))
    print(f"{arguments.kills} kills: {len(wrong)} runs were wrong")


if __name__ == "__main__":
    main()

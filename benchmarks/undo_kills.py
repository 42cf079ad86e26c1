"""Kill runs and chats with SIGKILL while calls are undone by their inverses; go on with them, and count.

python benchmarks/undo_kills.py [--kills N] [--seed N]

Code makes four calls; then it fails and is rolled back, or a person says /undo. An inverse must be called once at most,
and be done unless somebody was told that this is not known.
"""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.call_kills import PAY, TEAM, main
from tests.support.openai_server import OpenAIServer

CALLS = 4
CODE = "```python\nfor number in range({calls}):\n    pay(number=number)\n{end}\n```"
REFUND = (
    PAY.replace("def pay", "def refund").replace("Pay somebody", "Take it back").replace("{number}", "refund {number}")
)


def team(on_error: str) -> dict[str, Any]:
    """A team whose agent pays, and takes it back."""
    made: dict[str, Any] = copy.deepcopy(TEAM)
    config = made["config"]["participants"][0]["config"]
    refund = copy.deepcopy(config["tools"][0])
    refund["config"] |= {"name": "refund", "source_code": REFUND, "description": "Take it back."}
    config["tools"][0]["config"]["source_code"] = PAY.replace("time.sleep(0.3)", "pass")
    config["tools"].append(refund)
    config |= {
        "on_error": on_error,
        "call_approval": {"provider": "coderoom.approval.AlwaysApprove", "config": {}},
        "call_rules": [{"function": "pay", "effect": "write", "inverse": "refund"}],
    }
    return made


def trial(seed: int) -> str:
    """Kill a run or a chat at a random moment of its undoing, go on, and return what is wrong, if anything."""
    choose = random.Random(seed)
    is_chat, wait = choose.random() < 0.5, choose.uniform(0, 1.4)
    code = CODE.format(calls=CALLS, end="" if is_chat else "1 / 0")
    with tempfile.TemporaryDirectory() as name, OpenAIServer([code, *["It is done."] * 4]) as server:
        folder, ledger = Path(name), Path(name) / "ledger"
        (folder / "team.json").write_text(json.dumps(team("keep" if is_chat else "rollback")))
        env = {
            **os.environ,
            "PYTHONWARNINGS": "ignore",
            "COLUMNS": "400",
            "OPENAI_API_KEY": "test",
            "OPENAI_BASE_URL": server.base_url,
            "CODEROOM_MODEL": "gpt-4o-2024-08-06",
            "CODEROOM_JOURNAL": str(folder / "journal.sqlite3"),
            "LEDGER": str(ledger),
        }

        def start(*arguments: str, lines: str = "") -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "coderoom", *arguments]
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(command, cwd=folder, env=env, text=True, **pipes)
            assert process.stdin is not None
            process.stdin.write(lines)
            process.stdin.flush()
            return process

        given = ["team.json", "--workspace", "work"]
        first = (
            start("chat", *given, lines="Pay.\n/undo\n") if is_chat else start("run", *given[:1], "Pay.", *given[1:])
        )
        end = time.monotonic() + 60
        while first.poll() is None and time.monotonic() < end:
            if ledger.exists() and f"begun refund {CALLS - 1}" in ledger.read_text():
                break
            time.sleep(0.002)
        time.sleep(wait)
        first.send_signal(signal.SIGKILL)
        shown, _ = first.communicate()
        time.sleep(0.4)  # The function runs in the process, and ends with it.
        before = Counter(ledger.read_text().split("\n"))
        second = start("chat", "--continue", lines="Go on.\n") if is_chat else start("resume")
        told, _ = second.communicate(timeout=120)
        counted = Counter(ledger.read_text().split("\n"))
        unknown = told.count("refund() may have undone it: it had begun when the run was ended")
        numbers = range(CALLS)
        wrong = [f"refund {each} was begun {counted[f'begun refund {each}']} times" for each in numbers
                 if counted[f"begun refund {each}"] > 1]  # fmt: skip
        wrong += [f"pay {each} was begun {counted[f'begun {each}']} times" for each in numbers
                  if counted[f"begun {each}"] != 1]  # fmt: skip
        missing = [each for each in numbers if not counted[f"done refund {each}"]]
        if len(missing) > min(unknown, 1):
            wrong.append(f"not undone, without a word: {missing}")
        done = sum(before[f"done refund {each}"] for each in numbers)
        line = f"seed {seed}, {'chat' if is_chat else 'run'}: {done} undone before, {len(missing)} unknown"
        print(line, flush=True)
        return f"{line}\n{wrong}\n{shown}\n{told}" if wrong else ""


if __name__ == "__main__":
    main(__doc__, trial)

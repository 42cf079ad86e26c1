"""Kill runs with SIGKILL at random moments, resume them, and compare them with a run that was not killed.

python benchmarks/kills.py [--runs N] [--seed N]

A server that speaks OpenAI's protocol counts the requests. A run whose request was on its way when it was killed may
send that one again; one that was answered must not be sent again. Code that has run appends to a file of the
workspace, which shows what ran twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.openai_server import OpenAIServer, Reply, Request

STEPS = 4
TASKS = {
    "coder-reviewer": "Count to four.",
    "code-act": "Count to four, step by step.",
    "coder-executor": "Count to four.",
}


def code(number: int) -> str:
    """The code of a step: it needs the variables of the step before it."""
    before = "count = 0" if number == 1 else "count = count"
    mark = f"open('ran', 'a').write('{number}\\n')"
    return f"```python\n{before}\ncount += 1\n{mark}\nimport time; time.sleep(0.05)\nprint('count', count)\n```"


def answer(request: Request) -> Reply:
    """The model: the next step, or the end."""
    text = json.dumps(request.messages)
    if "response_format" in request.body:
        schema = json.dumps(request.body["response_format"])
        if "retry" in schema:
            return Reply(json.dumps({"retry": False, "reason": "no"}), delay=0.05)
        return Reply(json.dumps({"approved": True, "issues": [], "summary": "Fine."}), delay=0.05)
    done = max((number for number in range(1, STEPS + 1) if f"count {number}" in text), default=0)
    stateless = "is run as a new program" in text
    if done == STEPS or (stateless and done):
        return Reply(f"The count is {done}.", delay=0.05)
    return Reply(code(done + 1), delay=0.05)


def run(arguments: list[str], folder: Path, server: OpenAIServer, kill_after: float | None) -> tuple[int, Any]:
    """Run a command; return its exit code, and its JSON if it was not killed."""
    env = {
        **os.environ,
        "OPENAI_API_KEY": "test",
        "OPENAI_BASE_URL": server.base_url,
        "CODEROOM_MODEL": "gpt-4o-2024-08-06",
        "CODEROOM_JOURNAL": str(folder / "journal.sqlite3"),
    }
    command = [sys.executable, "-m", "coderoom", *arguments, "--json"]
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, error = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return -9, None
    if not out:
        raise SystemExit(error.decode())
    return process.returncode, json.loads(out)


def facts(team: str, record: Any, folder: Path) -> dict[str, Any]:
    """What must be equal."""
    differing = ("id", "created_at", "metadata")
    messages = [{name: each[name] for name in each if name not in differing} for each in record["messages"]]
    # Code that was killed before it ended runs again, and writes its mark again.
    messages = json.loads(re.sub(r"\d+ bytes", "N bytes", json.dumps(messages)))
    record["answer"] = re.sub(r"\d+ bytes", "N bytes", record["answer"])
    ran = Counter((folder / "work" / "ran").read_text().split())
    return {"outcome": record["outcome"], "answer": record["answer"], "messages": messages, "ran": ran}


def trial(team: str, seed: int, whole: dict[str, Any], requests: int, seconds: float) -> str:
    """Kill a run until it ends; return what is wrong."""
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, OpenAIServer(respond=answer) as server:
        folder = Path(name)
        start = ["run", team, TASKS[team], "--workspace", "work"]
        _, record = run(start, folder, server, choose.uniform(0.4, seconds))
        kills = 0
        while record is None:
            kills += 1
            again = ["resume"] if list(folder.glob("journal.sqlite3")) and has_run(folder) else start
            _, record = run(again, folder, server, choose.uniform(0.6, seconds) if kills < 4 else None)
        if "error" in record and "nothing is left to do" in str(record["error"]):
            return ""  # It was killed after its end.
        if "messages" not in record:
            return f"{team} seed {seed}: {record}"
        found = facts(team, record, folder)
        wrong = [name for name in ("outcome", "answer", "messages") if found[name] != whole[name]]
        if any(count < 1 for count in found["ran"].values()) or set(found["ran"]) != set(whole["ran"]):
            wrong.append(f"ran {dict(found['ran'])}")
        if len(server.requests) > requests + kills:
            wrong.append(f"{len(server.requests)} requests, and {requests} without {kills} kills")
        return (
            f"{team} seed {seed} ({kills} kills): {', '.join(map(str, wrong))} {found if wrong else ''}"
            if wrong
            else ""
        )


def has_run(folder: Path) -> bool:
    """Whether the run has reached the journal."""
    done = subprocess.run(
        [sys.executable, "-m", "coderoom", "runs", "--journal", str(folder / "journal.sqlite3"), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return bool(json.loads(done.stdout)["runs"])


def main() -> None:
    """Print how many runs were not as the one that was not killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    expected = {}
    for team in TASKS:
        with tempfile.TemporaryDirectory() as name, OpenAIServer(respond=answer) as server:
            begun = time.perf_counter()
            _, record = run(["run", team, TASKS[team], "--workspace", "work"], Path(name), server, None)
            seconds = time.perf_counter() - begun
            expected[team] = (facts(team, record, Path(name)), len(server.requests), seconds)
            print(f"{team}: {record['outcome']}, {len(server.requests)} requests, {seconds:.1f} s")
    wrong = 0
    for number in range(arguments.runs):
        team = list(TASKS)[number % len(TASKS)]
        if found := trial(team, arguments.seed * 1000 + number, *expected[team]):
            wrong += 1
            print(found, flush=True)
    print(f"{arguments.runs} runs were killed and resumed; {wrong} were not as the run that was not killed")


if __name__ == "__main__":
    main()

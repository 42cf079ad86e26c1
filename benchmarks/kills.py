"""Kill runs with SIGKILL at random moments, resume them, and compare them with a run that was not killed.

python benchmarks/kills.py [--runs N] [--seed N] [--team TEAM]

A server that speaks OpenAI's protocol counts the requests. A run whose request was on its way when it was killed may
send that one again; one that was answered must not be sent again. Code that has run appends to a file of the
workspace, which shows what ran twice. The team `branches.json` is one whose agent fails, and then tries three repairs
at the same time, twice: its code sleeps for a while, so that most kills are in the middle of branches.
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
    "branches.json": "Count in branches.",
}
BRANCHES = 3
TEAM = {
    "provider": "coderoom.teams.CodingTeam",
    "config": {
        "participants": [
            {
                "provider": "coderoom.agents.CodeActAgent",
                "config": {
                    "name": "coder",
                    "code_executor": {
                        "provider": "coderoom.executors.SandboxCodeExecutor",
                        "config": {"work_dir": "${CODEROOM_WORKSPACE}"},
                    },
                    "branches": [{"prompt": f"Repair {number}."} for number in range(1, BRANCHES + 1)],
                },
            }
        ],
        "max_turns": 1,
    },
}


def code(number: int) -> str:
    """The code of a step: it needs the variables of the step before it."""
    before = "count = 0" if number == 1 else "count = count"
    mark = f"open('ran', 'a').write('{number}\\n')"
    return f"```python\n{before}\ncount += 1\n{mark}\nimport time; time.sleep(0.05)\nprint('count', count)\n```"


def branch_code(place: str, ends: str) -> str:
    """The code of an attempt in a branch: it needs the variables of the attempts before it."""
    mark = f"open('ran', 'a').write('{place}\\n')"
    return f"```python\n{mark}\ncount.append('{place}')\nimport time; time.sleep(0.3)\n{ends}\n```"


def answer_in_branches(text: str) -> Reply:
    """The model of the team with branches: it fails, all of its first repairs fail, and one of the next ones works."""
    if "count is" in text:
        return Reply("The count is a-1-b2.", delay=0.05)
    if "KeyError" not in text and "Repair" not in text:
        return Reply("```python\ncount = ['a']\nopen('ran', 'a').write('a\\n')\nraise ValueError('a')\n```", delay=0.05)
    place = re.search(r"Repair (\d)", text)
    assert place is not None
    number = int(place[1])
    if "KeyError" not in text:
        return Reply(branch_code(str(number), f"raise KeyError({number})"), delay=0.1 * number)
    ends = "print('count is', '-'.join(count))" if number == 2 else "raise RuntimeError(3)"
    return Reply(branch_code(f"b{number}", ends), delay=0.1 * (4 - number))


def answer(request: Request) -> Reply:
    """The model: the next step, or the end."""
    text = json.dumps(request.messages)
    if "Count in branches." in text:
        return answer_in_branches(text)
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


def run(
    arguments: list[str], folder: Path, server: OpenAIServer, kill_after: float | None, requests: int = 0
) -> tuple[int, Any]:
    """Run a command, and kill it some time after so many requests; return its exit code and, at its end, its JSON."""
    env = {
        **os.environ,
        "OPENAI_API_KEY": "test",
        "OPENAI_BASE_URL": server.base_url,
        "CODEROOM_MODEL": "gpt-4o-2024-08-06",
        "CODEROOM_JOURNAL": str(folder / "journal.sqlite3"),
    }
    command = [sys.executable, "-m", "coderoom", *arguments, "--json"]
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    goal = len(server.requests) + requests
    while len(server.requests) < goal and process.poll() is None:
        time.sleep(0.01)
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


def trial(team: str, seed: int, whole: dict[str, Any], requests: int, seconds: float) -> tuple[int, str]:
    """Kill a run until it ends; return how often, and what is not as in the run that was not killed."""
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, OpenAIServer(respond=answer) as server:
        folder = Path(name)
        (folder / "branches.json").write_text(json.dumps(TEAM))
        start = ["run", team, TASKS[team], "--workspace", "work"]

        def go(command: list[str], begin: float) -> Any:
            if team == "branches.json":  # In the middle of a branching: it has begun to send what is new.
                return run(command, folder, server, choose.uniform(0, 0.8), choose.randint(1, 3))[1]
            return run(command, folder, server, choose.uniform(begin, seconds))[1]

        record, kills = go(start, 0.4), 0
        while record is None:
            kills += 1
            again = ["resume"] if list(folder.glob("journal.sqlite3")) and has_run(folder) else start
            record = go(again, 0.6) if kills < 4 else run(again, folder, server, None)[1]
        if "error" in record and "nothing is left to do" in str(record["error"]):
            return kills, ""  # It was killed after its end.
        if "messages" not in record:
            return kills, f"{team} seed {seed}: {record}"
        found = facts(team, record, folder)
        wrong = [name for name in ("outcome", "answer", "messages") if found[name] != whole[name]]
        if any(count < 1 for count in found["ran"].values()) or set(found["ran"]) != set(whole["ran"]):
            wrong.append(f"ran {dict(found['ran'])}")
        if len(server.requests) > requests + kills * (BRANCHES if team == "branches.json" else 1):
            wrong.append(f"{len(server.requests)} requests, and {requests} without {kills} kills")
        told = f"{team} seed {seed} ({kills} kills): {', '.join(map(str, wrong))} {found}"
        return kills, told if wrong else ""


def not_killed(team: str) -> tuple[dict[str, Any], int, float]:
    """The facts of a run that is not killed, its requests, and the seconds that it takes."""
    with tempfile.TemporaryDirectory() as name, OpenAIServer(respond=answer) as server:
        (Path(name) / "branches.json").write_text(json.dumps(TEAM))
        begun = time.perf_counter()
        _, record = run(["run", team, TASKS[team], "--workspace", "work"], Path(name), server, None)
        return facts(team, record, Path(name)), len(server.requests), time.perf_counter() - begun


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
    parser.add_argument("--team", choices=TASKS, help="Only this one.")
    arguments = parser.parse_args()
    expected = {}
    teams = [arguments.team] if arguments.team else list(TASKS)
    for team in teams:
        expected[team] = whole, requests, seconds = not_killed(team)
        print(f"{team}: {whole['outcome']}, {requests} requests, {seconds:.1f} s")
    wrong = kills = 0
    for number in range(arguments.runs):
        team = teams[number % len(teams)]
        more, found = trial(team, arguments.seed * 1000 + number, *expected[team])
        kills += more
        wrong += bool(found)
        print(f"{number + 1} of {arguments.runs}, {kills} kills {found}", flush=True)
    print(
        f"{arguments.runs} runs were killed {kills} times and resumed; {wrong} were not as the run that was not killed"
    )


if __name__ == "__main__":
    main()

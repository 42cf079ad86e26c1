"""The scripts of `examples/execute_code`, as a person starts them."""

from __future__ import annotations

import csv
import subprocess
from datetime import date
from pathlib import Path

import pytest

from tests.runs.answers import python
from tests.support.commands import ROOT, run_script
from tests.support.openai_server import OpenAIServer

FOLDER = ROOT / "examples" / "execute_code"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "chosen_model")


def run(script: str, cwd: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = run_script(FOLDER / f"{script}.py", *arguments, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return done


def fridays() -> str:
    days = [date(year, month, 13) for year in range(2001, 2101) for month in range(1, 13)]
    return str(sum(day.isoweekday() == 5 for day in days))


def sum_of_primes(below: int) -> str:
    sieve = [False, False, *[True] * (below - 2)]
    for number in range(2, below):
        if sieve[number]:
            sieve[number * number :: number] = [False] * len(sieve[number * number :: number])
    return str(sum(number for number, prime in enumerate(sieve) if prime))


def driest_decade() -> str:
    with (ROOT / "examples" / "nile.csv").open(newline="") as file:
        rows = [(int(row["year"]), int(row["flow"])) for row in csv.DictReader(file)]
    total = sum(flow for _, flow in rows)
    sums = {start: sum(flow for year, flow in rows if start <= year < start + 10) for start in range(1871, 1971, 10)}
    start = min(sums, key=lambda decade: sums[decade])
    return str({"first_year": start, "percent_below_mean": round(100 * (1 - 10 * sums[start] / total), 1)})


EXPECTED = {
    "plan": ["Plan:\n1. Go through the years", "Code:\nfrom datetime import date", f"Result: {fridays()}\n"],
    "refine": [
        "Round 1: ValueError: Invalid isoformat string: '31.03.2024'",
        "Round 2: The result was '46 days', and a whole number is wanted.",
        f"The longest gap is {(date(2024, 6, 15) - date(2024, 4, 30)).days} days.",
    ],
    "review": [f"Result: {sum_of_primes(10_000)}\n", "Review: It is right"],
    "pipeline": ["Leave out the cancelled orders. [{", "as a dict. {'Ada': 20000, 'Grace': 120000}\n"],
    "analyse": [f"{driest_decade()}\n"],
    "calculate": [
        f"(5 + 3) * 2 - 10: {(5 + 3) * 2 - 10:.2f}\n",
        f"after 7 years: {1500 * (1 + 0.032 / 12) ** 84:.2f}\n",
        "1 / (3 - 3): ZeroDivisionError: division by zero",
    ],
}


def test_every_script_is_here_with_its_recording() -> None:
    assert sorted(EXPECTED) == SCRIPTS
    assert sorted(path.name for path in FOLDER.glob("*.yaml")) == [f"{script}.replay.yaml" for script in SCRIPTS]


@pytest.mark.parametrize("script", EXPECTED)
def test_it_runs_without_a_key(script: str, tmp_path: Path) -> None:
    done = run(script, tmp_path)
    for words in EXPECTED[script]:
        assert words in done.stdout
    assert done.stderr == "The model is a recording: its words were written beforehand, all else is real.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("named", ["argument", "environment"])
def test_it_asks_a_real_model(named: str, tmp_path: Path) -> None:
    with OpenAIServer(["1. Count.", python("result = 6 * 7")]) as server:
        env = {"OPENAI_BASE_URL": server.base_url}
        arguments = []
        if named == "argument":
            arguments = ["--model", "openai:some-new-model"]
        else:
            env["CODEROOM_MODEL"] = "some-new-model"
        done = run("plan", tmp_path, *arguments, **env)
        requests = server.requests
    assert done.stdout == "Plan:\n1. Count.\n\nCode:\nresult = 6 * 7\n\nResult: 42\n"
    assert done.stderr == ""
    assert [request.body["model"] for request in requests] == ["some-new-model"] * 2
    assert "Follow this plan:\n1. Count." in requests[1].messages[-1]["content"]

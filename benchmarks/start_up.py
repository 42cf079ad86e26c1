"""Measure how long the command line takes to start, as a ratio to importing AutoGen's agents in the same run.

python benchmarks/start_up.py [rounds]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from time import perf_counter

COMMANDS = {
    "an empty interpreter": ["-c", "pass"],
    "coderoom --help": ["-m", "coderoom", "--help"],
    "coderoom --version": ["-m", "coderoom", "--version"],
    "coderoom validate analyst": ["-m", "coderoom", "validate", "analyst"],
    "coderoom doctor": ["-m", "coderoom", "doctor"],
    "import autogen_agentchat.agents": ["-c", "import autogen_agentchat.agents"],
}
BASE = "import autogen_agentchat.agents"


def seconds(arguments: list[str]) -> float:
    """Run a command and return how long it took."""
    begin = perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - begin


def main() -> None:
    """Measure each command in turn, round by round, and print the medians."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    base = statistics.median(times[BASE])
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:34} {median * 1000:6.0f} ms   {median / base:5.2f} of importing AutoGen's agents")


if __name__ == "__main__":
    main()

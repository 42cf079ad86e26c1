"""The examples at the end of the help of each command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "": (
        'coderoom ask "What is a monad?"',
        'coderoom run analyst "Which decade was the driest?" --file data.csv',
        "coderoom exec notes.md",
    ),
    "run": (
        'coderoom run analyst "Which decade was the driest?" --file data.csv',
        'coderoom run code-act "Sort the files by year." --workspace . --review',
        'coderoom run coder-reviewer "How many primes are there below 100?" --print --model ollama:llama3.2',
    ),
    "ask": (
        'coderoom ask "What is a monad?" --model openai:gpt-4o-mini',
        'git diff | coderoom ask "What may break?"',
        'coderoom ask "Which column has gaps?" -f data.csv -s "Answer in one sentence."',
    ),
    "resume": ("coderoom resume", "coderoom resume 20261128-1322 --max-tokens 50000"),
    "chat": (
        "coderoom chat code-act",
        'coderoom chat analyst "What is in it?" --file data.csv --budget cost_usd=0.50',
        "coderoom chat --continue",
    ),
    "exec": (
        "coderoom exec notes.md",
        "coderoom exec analysis.ipynb --package 'polars>=1' --timeout 300",
        "coderoom exec script.py --stdin data.csv -- --verbose",
    ),
    "batch": (
        "coderoom batch code-act tasks.jsonl --out results --model openai:gpt-4o-mini",
        "coderoom batch code-act tasks.jsonl --out results --repeat 5 --check check.py --budget cost_usd=5",
        "coderoom batch diff results other-results",
    ),
    "judge": (
        "coderoom judge tests --candidate solution.py --strength",
        "coderoom judge humaneval samples.jsonl --problems problems.jsonl",
    ),
    "solve": (
        'coderoom solve "Parse ISO 8601 durations." --out durations',
        "coderoom solve --tests-for prices.py:total --out tests",
    ),
    "fix": (
        'coderoom fix . "Totals are off by one cent." --test "pytest -q"',
        "coderoom fix . --issue issue.md --branch fix-totals",
    ),
    "teams": ("coderoom teams", "coderoom teams --json"),
    "show": ("coderoom show analyst", "coderoom show team.yaml"),
    "init": ("coderoom init team.yaml", "coderoom init team.yaml --team analyst --yes"),
    "validate": ("coderoom validate team.yaml",),
    "convert": ("coderoom convert autogen.json", "coderoom convert autogen.json --out team.yaml"),
    "gallery": ("coderoom gallery --team team.yaml --out gallery.json",),
    "studio": ("coderoom studio", "coderoom studio --team team.yaml --port 0 --no-browser"),
    "schema": ("coderoom schema --out team.schema.json",),
    "mcp": ("coderoom mcp --workspace .", "coderoom mcp --http 8765 --team analyst --model openai:gpt-4o-mini"),
    "serve": ("coderoom serve analyst", "coderoom serve team.yaml --port 9000 --budget tokens=20000"),
    "skills": ("coderoom skills skills", "coderoom skills skills amounts", "coderoom skills skills --check"),
    "doctor": ("coderoom doctor", "coderoom doctor --json"),
    "packages": ("coderoom packages", "coderoom packages --prune 30"),
    "models": ("coderoom models", "coderoom models --setup", "coderoom models openai:gpt-4o-mini ollama:llama3.2"),
    "runs": ("coderoom runs --since 7d", "coderoom runs --team analyst --outcome failed", "coderoom runs show"),
    "runs show": ("coderoom runs show", "coderoom runs show 20261128-1322 --html run.html"),
    "runs export": ("coderoom runs export --out run.ipynb", "coderoom runs export 20261128-1322 --as script"),
    "runs serve": ("coderoom runs serve", "coderoom runs serve --port 8090"),
    "runs diff": ("coderoom runs diff 20261128-1322 last",),
    "runs policy": ("coderoom runs policy last",),
    "runs lock": ("coderoom runs lock last",),
    "runs rm": ("coderoom runs rm 20261128-1322",),
    "runs prune": ("coderoom runs prune --older 30d",),
    "cache": ("coderoom cache show",),
    "cache show": ("coderoom cache show",),
    "cache clear": ("coderoom cache clear",),
    "sandbox": ("coderoom sandbox serve",),
    "sandbox serve": (
        "coderoom sandbox serve --port 8080",
        "coderoom sandbox serve --tenants tenants.yaml",
    ),
}
"""By the words of the command. Those of a team, a file and a run are its user's."""


def examples_of(command: str) -> str:
    """The end of the help of a command: its examples, a line each."""
    lines = "".join(f"  {line}\n" for line in EXAMPLES.get(command, ()))
    return f"\nExamples:\n{lines}" if lines else ""

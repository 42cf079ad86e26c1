"""What a shell completes: teams, runs, walls, models and recordings. No AutoGen, which would take a second.

Files are completed by the shell itself where nothing here begins with what was typed.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import resources
from pathlib import Path
from typing import Any, Final

from coderoom._util.text import visible
from coderoom.errors import CodeRoomError
from coderoom.models.services import MODEL_VARIABLE, REPLAY, SERVICES
from coderoom.sandbox.registry import WALLS

_MOST_RUNS: Final = 30
_LONGEST_TASK: Final = 60
_SERVICE_OF: Final = {"gpt-": "openai", "claude-": "anthropic", "gemini-": "gemini"}
"""The service by how the names of its models begin."""


def teams(incomplete: str) -> list[str]:
    """The shipped teams, and team files in the current folder."""
    shipped = (resources.files("coderoom.configs") / "shipped").iterdir()
    names = sorted(each.name.removesuffix(".yaml") for each in shipped if each.name.endswith(".yaml"))
    files = [str(each) for suffix in ("yaml", "yml", "json") for each in Path().glob(f"*.{suffix}")]
    return [each for each in [*names, *files] if each.startswith(incomplete)]


def runs(incomplete: str) -> list[tuple[str, str]]:
    """The newest runs of the journal, with their tasks."""
    return [
        (entry.id, visible(" ".join(entry.task.split()))[:_LONGEST_TASK])
        for entry in _entries()
        if entry.id.startswith(incomplete)
    ]


def walls(incomplete: str) -> list[str]:
    """The walls."""
    return [each for each in ("auto", *WALLS.own) if each.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Models that were used, those with a price, the services, and recordings."""
    if incomplete.startswith(f"{REPLAY}:"):
        return [f"{REPLAY}:{each}" for each in _files(incomplete.partition(":")[2])]
    used = [os.environ.get(MODEL_VARIABLE), *(entry.model for entry in _entries())]
    prices = (resources.files("coderoom.models") / "prices.yaml").read_text("utf-8")
    priced = [
        f"{service}:{name}"
        for start, service in _SERVICE_OF.items()
        for name in re.findall(rf"^({start}[\w.-]+):", prices, re.MULTILINE)
    ]
    services = [f"{name}:" for name in (*SERVICES, REPLAY)]
    return [each for each in dict.fromkeys([*filter(None, used), *priced, *services]) if each.startswith(incomplete)]


def _entries() -> list[Any]:
    from coderoom.runs.journal import open_journal

    with suppress(CodeRoomError):
        journal = open_journal(os.environ.get("CODEROOM_JOURNAL"))
        return [] if journal is None else journal.runs(most=_MOST_RUNS)
    return []


def _files(start: str) -> list[str]:
    folder = start.rpartition("/")[0]
    found = sorted(Path(folder or ".").glob("*")) if not folder or Path(folder).is_dir() else []
    shown = [f"{each}/" if each.is_dir() else str(each) for each in found]
    return [each for each in shown if each.startswith(start) and each.endswith(("/", ".yaml", ".json", ".jsonl"))]


@contextmanager
def with_whole_words() -> Iterator[None]:
    """Complete words with colons in bash, which takes them for several and replaces only the last part."""
    if os.environ.get("_CODEROOM_COMPLETE") != "complete_bash":
        yield
        return
    words, at = _joined(os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"]))
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(at)}
    word = words[at] if at < len(words) else ""
    typed = word.partition("=")[2] if word.startswith("--") else word
    start = typed[: typed.rfind(":") + 1]
    shown = io.StringIO()
    try:
        with redirect_stdout(shown):
            yield
    finally:
        sys.stdout.write("".join(line.removeprefix(start) for line in shown.getvalue().splitlines(keepends=True)))


def _joined(words: list[str], at: int) -> tuple[list[str], int]:
    """The words of which bash has made several, and the place of the one at the cursor."""
    found: list[str] = []
    place = at
    for number, word in enumerate(words):
        if found and number > 1 and (word in (":", "=") or words[number - 1] in (":", "=")):
            found[-1] += word
        else:
            found.append(word)
        if number == at:
            place = len(found) - 1
    return found, place if at < len(words) else len(found)

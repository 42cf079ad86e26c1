"""A run as the text of one file. Used by `coderoom runs export`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from coderoom._util.text import encodable
from coderoom.errors import RequestError
from coderoom.runs.export.markdown import markdown_of
from coderoom.runs.export.notebook import notebook_of
from coderoom.runs.export.parts import facts_of, parts_of, title_of
from coderoom.runs.export.script import script_of
from coderoom.runs.journal import Journal, RunEntry

ExportKind = Literal["notebook", "markdown", "script"]
SUFFIXES: Final[Mapping[str, ExportKind]] = {".ipynb": "notebook", ".md": "markdown", ".py": "script"}


def export_run(journal: Journal, entry: RunEntry, kind: ExportKind) -> str:
    """A run as the text of one file, with the code of the branches that won, and of no others.

    Args:
        journal: The journal.
        entry: The run.
        kind: `notebook`: a Jupyter notebook with words, code, output and pictures. `markdown`: the same as one Markdown
            file. `script`: the code that ran, in order, as a Python script that runs it again.

    Raises:
        RequestError: There is no such kind, or the run has no code that a Python script can repeat.
    """
    if kind not in SUFFIXES.values():
        raise RequestError(f"A run is not exported as {kind!r}; there are {', '.join(SUFFIXES.values())}.")
    steps = list(journal.steps(entry.id))
    parts, facts = parts_of(entry, steps), facts_of(entry, steps)
    if kind == "script":
        return encodable(script_of(entry, facts, parts))

    def content(file: Mapping[str, Any]) -> bytes:
        return journal.content(entry.id, file.get("hash") or "")

    made = notebook_of if kind == "notebook" else markdown_of
    return encodable(made(title_of(entry), facts, parts, content))

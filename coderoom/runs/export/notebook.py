"""A run as a Jupyter notebook, with the code, its output and its pictures."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from coderoom._util.text import visible
from coderoom.outcome import Outcome
from coderoom.runs.export.markdown import Content, head_of, heading_of, said_as_markdown
from coderoom.runs.export.parts import PICTURES, Part, Ran, Said
from coderoom.runs.export.script import as_comment, named
from coderoom.runs.tables import without_table
from coderoom.sandbox import PROGRAMS

_LARGEST_TABLE: Final = 1_000_000
_PLAIN_FILE: Final = re.compile(r"\w[\w.-]*")


def notebook_of(title: str, facts: Mapping[str, str], parts: Sequence[Part], content: Content) -> str:
    """The whole file, in version 4.5 of the format."""
    cells: list[dict[str, Any]] = []
    count, before = 0, ""

    def add(kind: str, source: str, **more: Any) -> None:
        name = sha256(f"{len(cells)} {source}".encode("utf-8", "replace")).hexdigest()[:12]
        cells.append({"cell_type": kind, "id": name, "metadata": {}, "source": _lines(source), **more})

    add("markdown", head_of(title, facts))
    for part in parts:
        if isinstance(part, Said):
            add("markdown", said_as_markdown(part, before))
            before = part.source or before
            continue
        add("markdown", heading_of(part))
        sources = [source for language, code in part.blocks for source in _cells(language, code)] or [""]
        for source in sources:  # Which of several has printed what is not known.
            count += 1
            outputs = list(_outputs(part, content)) if count and source is sources[-1] else []
            # An attempt that failed is followed by those that did not: it does not end a run of all cells.
            fails = {} if part.outcome == Outcome.OK else {"metadata": {"tags": ["raises-exception"]}}
            add("code", source, execution_count=count, outputs=outputs, **fails)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _cells(language: str, code: str) -> Iterator[str]:
    """The cells of a block: one that writes the file that it names, and one that runs it in Jupyter."""
    if (name := named(code)) is not None and _PLAIN_FILE.fullmatch(name):
        yield f"%%writefile {name}\n{code}"
    if language == "python":
        yield code
    elif language not in PROGRAMS:
        yield as_comment(f"{language}:\n{code}")
    elif PROGRAMS[language].build or "{python}" in PROGRAMS[language].argv:
        yield f"%%script coderoom exec --language {language} -\n{code}"
    else:
        yield f"%%script {PROGRAMS[language].argv[0]}\n{code}"


def _outputs(ran: Ran, content: Content) -> Iterator[dict[str, Any]]:
    stream, text = "stdout" if ran.outcome == Outcome.OK else "stderr", ""
    for shown in ran.shown():
        if isinstance(shown, str):
            text += shown
            continue
        kind, data = shown["media_type"], content(shown)
        forms: dict[str, Any] = {"text/plain": [f"{visible(shown['name'])}, {shown['size']:,} bytes"]}
        if data and kind in PICTURES:
            forms[kind] = base64.b64encode(data).decode()
        elif data and shown.get("position") is not None and kind == "text/html" and len(data) <= _LARGEST_TABLE:
            table = data.decode("utf-8", "replace")
            text = without_table(text, table)
            forms[kind] = _lines(table)
        yield from _stream(stream, text)
        text = ""
        yield {"output_type": "display_data", "data": forms, "metadata": {}}
    yield from _stream(stream, text)


def _stream(name: str, text: str) -> Iterator[dict[str, Any]]:
    if text.strip():
        yield {"output_type": "stream", "name": name, "text": _lines(visible(text))}

"""A run as Markdown. What agents and models wrote shows as words: it loads nothing, and nothing in it is HTML."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from coderoom._util.text import code_span, visible
from coderoom.runs.export.parts import PICTURES, Part, Ran, Said
from coderoom.runs.prose import COMMONMARK, LONGEST_PROSE

Content = Callable[[Mapping[str, Any]], bytes]
"""Gives the content of a file that a run made; nothing if the journal has none."""

_END: Final = "end-of-the-text"
# Text with one of these shows something else than it says, or loads something.
_ACTIVE: Final = frozenset({"html_block", "html_inline", "image"})


def markdown_of(title: str, facts: Mapping[str, str], parts: Sequence[Part], content: Content) -> str:
    """The whole file."""
    found, before = [head_of(title, facts)], ""
    for part in parts:
        if isinstance(part, Said):
            found.append(said_as_markdown(part, before))
            before = part.source or before
            continue
        found.append(heading_of(part))
        found += [fenced(code, language) for language, code in part.blocks]
        for shown in part.shown():
            if isinstance(shown, str):
                found.append(fenced(shown))
            elif (kind := shown["media_type"]) in PICTURES and (data := content(shown)):
                name = re.sub(r"[^\w. -]", "_", shown["name"])
                found.append(f"![{name}](data:{kind};base64,{base64.b64encode(data).decode()})")
            else:
                found.append(f"{code_span(shown['name'])}, {shown['size']:,} bytes")
    return "\n\n".join(found) + "\n"


def head_of(title: str, facts: Mapping[str, str]) -> str:
    """The title, and what a reader wants to know first."""
    rows = "\n".join(f"- {name}: {code_span(value)}" for name, value in facts.items())
    return f"# {code_span(title)}\n\n{rows}"


def heading_of(ran: Ran) -> str:
    """The heading of code that has run."""
    return f"### {code_span(ran.title)}: {ran.ended}"


def said_as_markdown(said: Said, before: str) -> str:
    """What was said, below a heading if somebody else was the last one to say something."""
    heading = f"## {code_span(said.source)}\n\n" if said.source and said.source != before else ""
    return f"{heading}{_words(said)}"


def fenced(text: str, language: str = "text") -> str:
    """A text in a fence that is longer than any in it."""
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    label = re.sub(r"[^\w+#-]", "", language)
    return f"{ticks}{label}\n{visible(text).rstrip()}\n{ticks}"


def _words(said: Said) -> str:
    """As Markdown if that shows only words, and as text otherwise."""
    if not said.is_prose or len(said.text) > LONGEST_PROSE:
        return fenced(said.text)
    text = visible(said.text).strip()
    tokens = COMMONMARK.parse(f"{text}\n\n{_END}", known := dict[str, Any]())
    found = {each.type for token in tokens for each in (token, *(token.children or ()))}
    is_closed = len(tokens) > 2 and tokens[-2].content == _END
    return text if is_closed and not found & _ACTIVE and "references" not in known else fenced(text)

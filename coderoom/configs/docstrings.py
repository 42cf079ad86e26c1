"""What docstrings in Google's style say about a class and about what it takes."""

from __future__ import annotations

import inspect
import re

__all__ = ["fields_of", "summary_of"]

_SECTION = re.compile(r"(?:Args|Arguments|Attributes):\s*")
_FIELD = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^:]*\))?:\s*(?P<text>.*)")


def summary_of(documented: type) -> str:
    """Give the first paragraph of a class's docstring, on one line; nothing if it has none of its own."""
    paragraph, _, _ = inspect.cleandoc(documented.__doc__ or "").partition("\n\n")
    return " ".join(paragraph.split())


def fields_of(documented: type) -> dict[str, str]:
    """Give what the docstring of a class says about each of its arguments or attributes, each on one line."""
    found: dict[str, list[str]] = {}
    inside, name, depth = False, "", None
    for line in inspect.cleandoc(documented.__doc__ or "").splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and not indent:
            inside, name, depth = _SECTION.fullmatch(line) is not None, "", None
        elif inside and line.strip():
            depth = depth or indent
            match = _FIELD.fullmatch(line.strip()) if indent == depth else None
            if match:
                name = match["name"]
                found[name] = [match["text"]]
            elif name:
                found[name].append(line.strip())
    return {key: " ".join(" ".join(lines).split()) for key, lines in found.items()}

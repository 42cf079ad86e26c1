"""JSON with the place of every key and value.

`json` says whether a text is JSON; a scan over its tokens, which can then be a simple one, says what stands where.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from coderoom.configs._places import Mark
from coderoom.configs._tree import MAX_DEPTH, Node, TreeBuilder

__all__ = ["read_json"]

_TOKEN = re.compile(r'\n|[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s\[\]{},:"]+', re.DOTALL)


def read_json(text: str, builder: TreeBuilder) -> Node | None:
    """Read a text with one JSON value.

    Args:
        text: The whole text.
        builder: What the document is built with.

    Returns:
        The document's value.

    Raises:
        ConfigError: The text is not JSON, or more than a team file may be.
    """
    _accept(text, builder)
    line, line_start = 1, 0
    for token in _TOKEN.finditer(text):
        word, mark = token[0], Mark(line, token.start() - line_start + 1)
        if word == "\n":
            line, line_start = line + 1, token.end()
        elif word in "[{":
            builder.open("list" if word == "[" else "mapping", mark)
        elif word in "]}":
            builder.close()
        else:
            value = json.loads(word)
            builder.scalar(mark, value, value if isinstance(value, str) else word)
    return builder.root


def _accept(text: str, builder: TreeBuilder) -> None:
    try:
        json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        mark = Mark(error.lineno, error.colno)
        reason = error.msg[:1].lower() + error.msg[1:]
        builder.fail(mark, f"this is not JSON: {reason} (line {mark.line}, column {mark.column})")
    except RecursionError:
        builder.fail(Mark(1, 1), f"the file nests deeper than {MAX_DEPTH} levels")
    except ValueError as error:  # a constant that JSON does not have, or thousands of digits
        builder.fail(Mark(1, 1), f"this is not JSON: {error}")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word!r} is not a JSON value")

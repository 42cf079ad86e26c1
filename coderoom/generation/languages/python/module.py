"""Joins functions in Python to one module."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from coderoom.generation.languages.python.facts import tree_of

__all__ = ["python_module"]


def python_module(implementations: Mapping[str, str], about: str) -> str:
    """The text of the module.

    Args:
        implementations: The code of each function, each after what it needs.
        about: What the module is for; it becomes the docstring.
    """
    future: dict[str, None] = {}
    parts = []
    for source in implementations.values():
        text, features = _without_future(source)
        future.update(dict.fromkeys(features))
        parts.append(text.strip("\n"))
    head = _docstring(about)
    if future:  # It has to stand before everything else.
        head += f"\n\nfrom __future__ import {', '.join(future)}"
    return "\n\n\n".join([head, *parts]) + "\n"


def _without_future(source: str) -> tuple[str, list[str]]:
    """Code without its statements `from __future__ import`, and what they ask for."""
    lines = source.split("\n")
    features: list[str] = []
    tree = tree_of(source)
    for node in tree.body if tree is not None else ():  # What is no Python has failed, and is told of as such.
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            features += [alias.name for alias in node.names]
            last = node.end_lineno or node.lineno
            begin = lines[node.lineno - 1].encode()[: node.col_offset].decode()
            end = lines[last - 1].encode()[node.end_col_offset :].decode()
            # Other statements may stand on its lines.
            lines[node.lineno - 1 : last] = [f"{begin}pass{end}" if (begin + end).strip() else ""] + [""] * (
                last - node.lineno
            )
    return "\n".join(lines), features


def _docstring(about: str) -> str:
    text = "".join(char if char.isprintable() or char == "\n" else " " for char in about).strip() or "Functions."
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    space = " " if text.endswith('"') else ""
    return f'"""{text}{space}"""'

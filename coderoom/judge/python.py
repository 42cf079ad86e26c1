"""`PythonHarness`: functions in Python, tested in a session of the engine `cpython`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from coderoom.judge.compare import error_matches
from coderoom.judge.guest.values import LIBRARIES
from coderoom.judge.harness import START, Harness, Job, call_inside
from coderoom.judge.pure import is_pure, is_pure_expression
from coderoom.judge.source import UNREADABLE, parsed


class PythonHarness(Harness):
    """Python, tested in a session of the engine `cpython`.

    Attributes:
        about: The docstring of the module that a program becomes.
    """

    name = "python"
    about: str = ""
    processes = 16  # A set of two has each order in half of them.
    error_matches = staticmethod(error_matches)

    def define(self, function: str, source: str) -> str:
        """See `Harness.define`."""
        return source

    def is_stateless(self, sources: Collection[str], job: Job) -> bool:
        """See `Harness.is_stateless`."""
        if not self.is_pure(sources) or "functions" in job:
            return False
        names = frozenset({*job["inputs"], "result", "after"})
        return "property" not in job or is_pure_expression(job["property"], names)

    def load(self, sources: Collection[str]) -> str:
        """See `Harness.load`."""
        named = [name for name in LIBRARIES if any(name in source for source in sources)]
        return START + call_inside("values", "keep_libraries", " ".join(named))

    def is_pure(self, sources: Collection[str]) -> bool:
        """See `Harness.is_pure`."""
        return is_pure(tuple(sources))

    def program(self, sources: Mapping[str, str]) -> str:
        """See `Harness.program`."""
        return self.write_module(sources, self.about)

    def write_module(self, implementations: Mapping[str, str], about: str) -> str:
        """The functions as a module, with its purpose as the docstring."""
        future: dict[str, None] = {}
        parts = []
        for source in implementations.values():
            text, features = _without_future(source)
            future.update(dict.fromkeys(features))
            parts.append(text.strip("\n"))
        head = _docstring(about)
        if future:  # It must come first.
            head += f"\n\nfrom __future__ import {', '.join(future)}"
        return "\n\n\n".join([head, *parts]) + "\n"


def tree_of(source: str) -> ast.Module:
    """The tree of code; an empty one if it is invalid, which is reported elsewhere."""
    try:
        return parsed(source)
    except UNREADABLE:
        return ast.Module([], [])


def _without_future(source: str) -> tuple[str, list[str]]:
    """Code without its `from __future__ import` statements, and the features that they enable."""
    lines = source.split("\n")
    features: list[str] = []
    for node in tree_of(source).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            features += [alias.name for alias in node.names]
            last = node.end_lineno or node.lineno
            begin = lines[node.lineno - 1].encode()[: node.col_offset].decode()
            end = lines[last - 1].encode()[node.end_col_offset :].decode()
            # The same lines may contain other statements.
            lines[node.lineno - 1 : last] = [f"{begin}pass{end}" if (begin + end).strip() else ""] + [""] * (
                last - node.lineno
            )
    return "\n".join(lines), features


def _docstring(about: str) -> str:
    text = "".join(char if char.isprintable() or char == "\n" else " " for char in about).strip() or "Functions."
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    space = " " if text.endswith('"') else ""
    return f'"""{text}{space}"""'

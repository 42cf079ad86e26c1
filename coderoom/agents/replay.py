"""Code that is run again to bring a session back: what came out otherwise, in words for a model."""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence

from autogen_core.code_executor import CodeBlock

from coderoom.agents.configs import PastCell
from coderoom.outcome import Outcome

__all__ = ["changed_cell", "digest_of", "lost_cell", "restored"]

_SHOWN = 200
_MOST_NAMES = 20


def digest_of(output: str) -> str:
    """What two outputs have in common that say the same; addresses and the numbers of cells differ in any case."""
    text = re.sub(r"0x[0-9a-fA-F]+|<cell \d+>", "#", output)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def lost_cell(cell: PastCell, outcome: Outcome, output: str) -> str:
    """A cell that ran well before and did not this time."""
    end = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    return f"the code that begins with {_beginning(cell)!r} ended with {outcome.value!r} this time ({end[:_SHOWN]})"


def changed_cell(cell: PastCell, output: str) -> str:
    """A cell that gave something else than before; empty if it gave the same, or nobody knows."""
    if cell.output_digest is None or cell.output_digest == digest_of(output):
        return ""
    before, now = (text.strip()[:_SHOWN] for text in (cell.output or "", output))
    names = sorted({name for block in cell.blocks for name in _names_set(block)})
    told = f"the code that begins with {_beginning(cell)!r} gave {before!r} before and {now!r} now"
    if not names:
        return told
    more = "" if len(names) <= _MOST_NAMES else f" and {len(names) - _MOST_NAMES} more"
    return f"{told}; it sets {', '.join(names[:_MOST_NAMES])}{more}"


def restored(lost: Sequence[str], changed: Sequence[str]) -> str:
    """What did not come back as it was; empty if all did."""
    parts = []
    if lost:
        parts.append(f"Not everything came back:\n{_listed(lost)}\n{_SET_AGAIN}")
    if changed:
        parts.append(f"Some of it came out otherwise this time:\n{_listed(changed)}\n{_LOOK}")
    return "\n\n".join([f"{_ANEW} {parts[0]}", *parts[1:]]) if parts else ""


def _beginning(cell: PastCell) -> str:
    lines = (line for block in cell.blocks for line in block.code.splitlines() if line.strip())
    return next(lines, "").strip()[:100]


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _names_set(block: CodeBlock) -> Iterator[str]:
    """The variables that a block of Python sets, as far as its text says."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(block.code, mode="exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


_ANEW = (
    "The session was started anew, and the code that had run well in it was run again, without calling functions again."
)
_SET_AGAIN = "What that code had set is gone. Set it again before you use it."
_LOOK = "What it has set may differ from what you saw before; look at it again before you rely on it."

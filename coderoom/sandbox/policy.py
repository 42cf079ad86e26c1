"""The policies: early feedback on what code may do, before it runs. They are never security; the walls are.

`policy_rules` has the rules of the policy `restricted`, `policy_check` applies them to a syntax tree, and
`guest.restricted` applies them while the code runs.
"""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Sequence
from typing import Final

from coderoom.sandbox.policy_check import RULES, PolicyFinding, find
from coderoom.sandbox.policy_rules import MAX_CHARACTERS
from coderoom.sandbox.result import CodeError

__all__ = ["POLICIES", "check_restricted"]

POLICIES: Final = ("restricted", "open")

_SHOWN: Final = 20

# The filters of warnings belong to the whole process.
_filtering = threading.Lock()


def check_restricted(code: str) -> CodeError | None:
    """Check Python code against the policy `restricted`, before it runs.

    Code with a syntax error has no findings: the interpreter that runs it reports the error. If that interpreter knows
    newer syntax than this one, the rules hold while the code runs.

    Returns:
        A `PolicyError` with every finding, its line, and an alternative where there is one; `None` if the code may run.
    """
    findings = _findings(code)
    return CodeError("PolicyError", _message(findings), line=findings[0].line) if findings else None


def _findings(code: str) -> list[PolicyFinding]:
    if len(code) > MAX_CHARACTERS:
        limit = f"the code has {len(code):,} characters, and {MAX_CHARACTERS:,} are allowed here: split it"
        return [PolicyFinding(1, limit, "size")]
    try:
        with _filtering, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The interpreter that runs the code shows them.
            tree = ast.parse(code)
    except (RecursionError, MemoryError):
        return [PolicyFinding(1, "the code is nested too deeply to be checked: split its expressions", "size")]
    except (SyntaxError, ValueError):  # Null bytes and lone surrogates are a `ValueError`.
        return []
    return find(tree)


def _message(findings: Sequence[PolicyFinding]) -> str:
    """Every finding with its lines; equal findings, and the list of allowed modules, only once."""
    lines: dict[str, list[int]] = {}
    for finding in findings:
        lines.setdefault(finding.message, []).append(finding.line)
    texts = [f"{_place(where)}: {message}" for message, where in list(lines.items())[:_SHOWN]]
    first = next((finding.message for finding in findings if finding.kind == "import"), None)
    texts = [
        f"{text}; {RULES.allowed}" if message == first else text for text, message in zip(texts, lines, strict=False)
    ]
    if len(lines) > _SHOWN:
        texts.append(f"and {len(lines) - _SHOWN} more")
    return "\n".join([*texts, "Nothing of this code was run."])


def _place(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"line {lines[0]}"
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return f"lines {', '.join(map(str, lines[:5]))}{more}"

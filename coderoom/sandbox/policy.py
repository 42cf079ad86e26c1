"""What the code is told it may do, checked on its syntax tree before anything runs.

A policy is early feedback for whoever wrote the code, in less time than a process takes to start. It keeps nobody
from anything: that is the wall's work.
"""

from __future__ import annotations

import ast
import difflib
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from coderoom.errors import RequestError
from coderoom.sandbox.policy_check import RULES, PolicyFinding, find
from coderoom.sandbox.policy_rules import MAX_CHARACTERS, restricted_rules
from coderoom.sandbox.result import CodeError

__all__ = ["POLICIES", "Policy", "PolicyFinding", "check_restricted"]

POLICIES: Final = ("restricted", "open")

_SHOWN: Final = 20

# What filters warnings is the whole process's.
_filtering = threading.Lock()


@dataclass(frozen=True)
class Policy:
    """What the code is told it may do.

    Attributes:
        name: `restricted` (harmless modules of the standard library, and neither files nor other programs nor the
            interpreter's insides) or `open` (whatever the wall lets through).
    """

    name: str

    @classmethod
    def named(cls, name: str) -> Self:
        """The policy of that name.

        Raises:
            RequestError: There is none.
        """
        if not isinstance(name, str) or name not in _CHECKS:
            near = difflib.get_close_matches(name, _CHECKS, n=1) if isinstance(name, str) else []
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise RequestError(f"There is no policy {name!r}; there are {' and '.join(map(repr, _CHECKS))}.{meant}")
        return cls(name)

    @property
    def rules(self) -> dict[str, Any] | None:
        """What the inside has to know of it, as data that JSON can carry; `None` if there is nothing."""
        return restricted_rules() if self.name == "restricted" else None

    def check(self, code: str, filename: str = "<cell>") -> CodeError | None:
        """Check Python code before it runs.

        Code that is no Python here has no findings: the interpreter that it is for reports it, and if that one knows
        newer syntax, the rules hold while it runs.

        Args:
            code: The code.
            filename: What to call it.

        Returns:
            A `PolicyError` with every finding, its line and the way out where one is near; `None` if it may run.
        """
        findings = _CHECKS[self.name](code, filename)
        return CodeError("PolicyError", _message(findings), line=findings[0].line) if findings else None


def check_restricted(code: str, filename: str = "<cell>") -> list[PolicyFinding]:
    """What the policy `restricted` does not allow in some Python code, in the order of the lines.

    Args:
        code: The code.
        filename: What to call it.
    """
    if len(code) > MAX_CHARACTERS:
        limit = f"the code has {len(code):,} characters, and {MAX_CHARACTERS:,} are allowed here: split it"
        return [PolicyFinding(1, limit, "size")]
    try:
        with _filtering, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # They are for the interpreter to give.
            tree = ast.parse(code, filename)
    except (RecursionError, MemoryError):
        return [PolicyFinding(1, "the code is nested too deeply to be checked: split its expressions", "size")]
    except (SyntaxError, ValueError):  # Null bytes and lone surrogates are a `ValueError`.
        return []
    return find(tree)


def _check_nothing(code: str, filename: str) -> list[PolicyFinding]:
    return []


_CHECKS: Final[dict[str, Callable[[str, str], list[PolicyFinding]]]] = {
    "restricted": check_restricted,
    "open": _check_nothing,
}


def _message(findings: Sequence[PolicyFinding]) -> str:
    """Every finding with its lines; what was found before, and the list of modules, only once."""
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

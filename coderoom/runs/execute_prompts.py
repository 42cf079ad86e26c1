"""What `execute_code` says to the model."""

from __future__ import annotations

from typing import Final

from coderoom.outcome import Outcome

__all__ = ["CUT_OFF", "MODULES", "NO_CODE", "after_failure", "instructions"]

MODULES: Final = (
    "math, cmath, random, statistics, decimal, fractions, numbers, json, re, string, textwrap, datetime, time, "
    "collections, itertools, functools, operator, copy, heapq, bisect, dataclasses, enum, typing"
)
"""What the model is told it may import. The policy allows some more, which nobody needs for an answer."""

_INSTRUCTIONS: Final = """\
You answer by writing Python code. It is run for you, and what it computes is the answer.

Answer with one ```python block: complete, ready to run as it is, with the data of the task written into it. Assign \
the answer to the variable `result`, as plain data: numbers, texts, True, False, None, and lists, tuples, sets and \
dicts of these. Compute it; do not write down an answer that you have worked out yourself.

The code has {timeout:g} seconds. It begins with nothing each time, nobody can type anything in, and there are no \
files, no network, no other programs and no third-party packages. It may import {modules}, and nothing else; open, \
eval, exec, compile, globals and attributes such as __dict__ are refused. Code that breaks these rules is not run, \
and there is no second try. If the task cannot be done within them, let the code raise a RuntimeError that says why."""

NO_CODE: Final = (
    "There is no Python code in your answer, so nothing was run. Answer with one ```python block that assigns the "
    "answer to `result`."
)

CUT_OFF: Final = (
    "Your code is cut off: the closing fence of its block is missing, so nothing was run. Write it again as a whole, "
    "shorter if need be."
)

_ADVICE: Final = {Outcome.TIMEOUT: " Find a faster way.", Outcome.MEMORY: " Find a way that needs less."}


def instructions(timeout: float) -> str:
    """The system message.

    Args:
        timeout: The seconds that the code has.
    """
    return _INSTRUCTIONS.format(timeout=timeout, modules=MODULES)


def after_failure(outcome: Outcome, problem: str, printed: str) -> str:
    """What a model is told about code that failed; the code itself is in its own message just before.

    Args:
        outcome: How the code ended.
        problem: The error, with the lines that it came from.
        printed: What the code printed, bounded.
    """
    shown = f"\n\nIt had printed:\n{printed.rstrip()}" if printed.strip() else ""
    advice = _ADVICE.get(outcome, "")
    return (
        f"Your code failed:\n{problem.rstrip()}{advice}{shown}\n\n"
        "Nothing of that run is left. Mend the cause, and answer with the whole code again in one ```python block."
    )

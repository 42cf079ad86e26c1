"""The texts with which a `CodeActAgent` tells its model where code goes, what it can call, and what was not run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Sequence

from coderoom.agents.attempt import CodeFormat
from coderoom.blocks import extract_code_blocks, normalize_language
from coderoom.sandbox import HostFunction

__all__ = ["unrun_code", "with_functions"]

_FORMATS = {
    "fence": "Put code to run in a ```python block",
    "execute": "Put Python code to run between <execute> and </execute>; code anywhere else is not run.",
}


_TEXTS = (
    "These give text (str), also where it is a number or JSON, or a list if there are several parts; int(...) or "
    "json.loads(...) make data of it. They are called without await: {names}."
)


def with_functions(
    system_message: str | None, code_format: CodeFormat, languages: Sequence[str], functions: Sequence[HostFunction]
) -> str:
    """The system message of a `CodeActAgent`: the given one, where code goes, and what it can call."""
    parts = [] if system_message is None else [system_message]
    where = _FORMATS[code_format]
    if code_format == "fence":
        where += " (or ```sh for the shell)." if "sh" in languages else "."
    parts.append(where)
    if functions:
        parts.append("Your code can call these functions, which are defined already; do not define or import them:")
        parts += [function.describe() for function in functions]
    if texts := [function.name for function in functions if function.gives_text]:
        parts.append(_TEXTS.format(names=", ".join(texts)))
    return "\n\n".join(parts)


_IN_ONE_LINE = re.compile(r"^ {0,3}```(\w+)[ \t]+[^`\n]+```[ \t]*$", re.MULTILINE)
_LONGEST = 20_000
_SAYS = (ast.AnnAssign, ast.Pass)  # As `total: 5` is in an output.


def unrun_code(reply: str, languages: Sequence[str], code_format: CodeFormat, known: Collection[str]) -> str:
    """A note for a model whose reply contains code where it is not run; empty if the reply is an answer.

    Args:
        reply: The reply, without code to run.
        languages: The languages that run.
        code_format: Where code to run is.
        known: Code and output of this turn: a reply that only shows them again is an answer.
    """
    runs = {normalize_language(language) for language in languages}
    blocks = [block for block in extract_code_blocks(reply) if block.closed and not block.no_run]
    new = [block for block in blocks if not any(block.code.strip() in text for text in known)]
    if code_format == "execute":
        fenced = any(block.tag != "execute" and block.language in runs for block in new)
        return f"{_FENCED} {_AGAIN}" if fenced else ""
    if any(normalize_language(tag) in runs for tag in _IN_ONE_LINE.findall(reply)):
        return f"{_ONE_LINE} {_AGAIN}"
    bare = any(block.language == "" and not block.tag and _is_python(block.code) for block in new)
    return f"{_BARE} {_AGAIN}" if bare else ""


def _is_python(code: str) -> bool:
    """Whether it is Python code, and not output."""
    if len(code) > _LONGEST:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        isinstance(node.value, ast.Call | ast.Await) if isinstance(node, ast.Expr) else not isinstance(node, _SAYS)
        for node in tree.body
    )


_AGAIN = "If the code is only part of your answer, repeat the whole answer."
_FENCED = (
    "The code in your reply was not run: only code between <execute> and </execute> is. To have it run, put it there."
)
_ONE_LINE = (
    "The code in your reply was not run: a block begins with ```python on a line of its own and ends with ``` on a "
    "line of its own. To have it run, write it so."
)
_BARE = "The code in your reply was not run: its block has no language. To have it run, begin the block with ```python."

"""Functions that stand in team files as their source, in place of a tool. Used by the check of team files."""

from __future__ import annotations

import ast
from typing import Any

_FUNCTION_TOOL = "autogen_core.tools.FunctionTool"


def tool_of(source: str) -> dict[str, Any]:
    """The tool that offers a function, from the function's source and the imports above it.

    Raises:
        ValueError: It is not the source of one function whose parameters and result are annotated.
    """
    try:
        *before, function = ast.parse(source).body
    except SyntaxError as error:
        raise ValueError(f"it is not Python: {error.msg}, line {error.lineno} of the text") from None
    except ValueError:
        raise ValueError("it is empty") from None
    imports = all(isinstance(each, ast.Import | ast.ImportFrom) for each in before)
    # AutoGen looks for the name after the first `def`.
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or not imports:
        raise ValueError("it is not one function, with nothing but imports above it")
    arguments = function.args
    bare = [
        each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if not each.annotation
    ]
    if bare or not function.returns:
        raise ValueError(
            f"{f'the parameter {bare[0]!r}' if bare else 'the result'} of {function.name}() has no annotation"
        )
    return {
        "provider": _FUNCTION_TOOL,
        "config": {
            "source_code": source,
            "name": function.name,
            "description": ast.get_docstring(function) or "",
            "global_imports": [],
            "has_cancellation_support": False,
        },
    }

"""Cells as code: without the indentation of the whole, and compiled in parts.

Used by the interpreter, and the host where it reads Python.
"""

from __future__ import annotations

import ast
import types

CO_COROUTINE = 128
"""The flag of code that awaits."""

VALUE = "<value>"
"""The variable with the value of a cell that awaits; no code has this name."""

_SHOW = "__import__('coderoom_guest.notebooks', fromlist=['show']).show()"
_BLANK = " \t\n\r\f"
# How lines begin that do not begin a statement.
_INSIDE = " \t\f\n#)]}"
_CONTINUING = ("elif", "else", "except", "finally")


def dedented(code: str) -> str:
    """Code without the indentation of its first line, as Jupyter runs it."""
    if code[:1] not in _BLANK:
        return code
    first = next((line for line in code.splitlines() if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip())]
    if not indent:
        return code
    return "".join([line[len(indent) :] if line.startswith(indent) else line for line in code.splitlines(True)])


def compile_cell(code: str, filename: str, flags: int) -> list[types.CodeType]:
    """Compile a cell to parts, of which the last one gives the value.

    A syntax tree is made only of the last statement if possible, since that takes longer than all the rest.
    """
    begin = _begin_of_last(code)
    if begin:
        try:
            first = compile(code[:begin], filename, "exec", flags, dont_inherit=True)
            blank = "\n" * code.count("\n", 0, begin)  # So that the lines have their numbers.
            parts = [first, *_compile_last(blank + code[begin:], filename, flags)]
            if not any(part.co_flags & CO_COROUTINE for part in parts):  # Otherwise all of it has to run in one task.
                return parts
        except SyntaxError:  # That was not the last statement, or the code is wrong.
            pass
    return _compile_last(code, filename, flags)


def compile_showing(code: str, filename: str, flags: int) -> list[types.CodeType]:
    """Compile a cell each of whose expressions is shown; the last one gives the value."""
    tree = compile(code, filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    for each in tree.body[:-1]:
        if isinstance(each, ast.Expr):
            call = ast.parse(_SHOW, mode="eval").body
            for node in ast.walk(call):
                ast.copy_location(node, each)
            call.args, each.value = [each.value], call  # type: ignore[attr-defined]
    return _compile_tree(tree, code, filename, flags)


def _begin_of_last(code: str) -> int:
    """Where the last statement seems to begin; 0 if the code has to be compiled as a whole."""
    if "__future__" in code or "\r" in code:
        return 0
    end = len(code)
    while (begin := code.rfind("\n", 0, end) + 1) > 0:
        is_decorated = code.startswith("@", code.rfind("\n", 0, begin - 1) + 1)
        if code[begin : begin + 1] not in _INSIDE and not code.startswith(_CONTINUING, begin) and not is_decorated:
            return begin
        end = begin - 1
    return 0


def _compile_last(code: str, filename: str, flags: int) -> list[types.CodeType]:
    """Compile code, and as a part of its own the expression that it ends with, if it does."""
    if not code.lstrip("\n")[:1].isspace():
        try:  # Mostly it is nothing else.
            return [compile(code, filename, "eval", flags, dont_inherit=True)]
        except SyntaxError:
            pass
    tree = compile(code, filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    return _compile_tree(tree, code, filename, flags)


def _compile_tree(tree: ast.Module, code: str, filename: str, flags: int) -> list[types.CodeType]:
    last = tree.body[-1] if tree.body else None
    is_hidden = False  # By a semicolon that follows it, as in Jupyter.
    if isinstance(last, ast.Expr):
        lines = code.splitlines()[last.end_lineno - 1 :]  # type: ignore[operator]
        lines[0] = lines[0].encode()[last.end_col_offset :].decode(errors="replace")
        is_hidden = any(";" in line.partition("#")[0] for line in lines)
    if not isinstance(last, ast.Expr) or is_hidden:
        return [compile(tree, filename, "exec", flags, dont_inherit=True)]
    tree.body.pop()
    parts = [
        compile(tree, filename, "exec", flags, dont_inherit=True),
        compile(ast.Expression(last.value), filename, "eval", flags, dont_inherit=True),
    ]
    if not any(part.co_flags & CO_COROUTINE for part in parts):
        return parts
    name = ast.copy_location(ast.Name(VALUE, ast.Store()), last)
    tree.body.append(ast.copy_location(ast.Assign([name], last.value), last))
    return [compile(tree, filename, "exec", flags, dont_inherit=True)]

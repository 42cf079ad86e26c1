"""Runs cells in the module `__main__`, whose variables last from cell to cell. Used by the runner."""

from __future__ import annotations
import __future__

import ast
import builtins
import linecache
import resource
import sys
import types
from typing import Any, Callable

from . import failures
from .files import Workspace
from .values import describe

_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag

_CO_COROUTINE = 128
# How lines begin that do not begin a statement.
_INSIDE = " \t\f\n#)]}"
_CONTINUING = ("elif", "else", "except", "finally")
_NOT_AWAITED = "{0}() was called without `await`, so it did not run: write `await {0}(...)`"


class Interpreter:
    """A module named `__main__`, and the cells that run in it, whose variables are `names`, in the folder of `files`.

    `contents` has the files that the last cell has created or changed, if the host cannot read them. `at_end` is called
    at the end of each cell, with its value unless that is data or there is none.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._limits = config["limits"]
        self._network = config["network"] or not config["lockdown"].get("use_seccomp", True)
        self.contents: list[bytes] = []
        self.at_end: Callable[[Any], None] = lambda _: None
        self._count = 0
        self._flags = 0
        self._loop: Any = None
        self.files = Workspace(config["workspace"], config["workspace_in_memory"])
        self._module = types.ModuleType("__main__")
        self.names = self._module.__dict__
        self.names["__builtins__"] = builtins
        sys.modules["__main__"] = self._module
        sys.argv = [""]
        builtins.input = _no_input
        for name in ("exit", "quit"):  # Missing because of `-S`, but scripts use them.
            if not hasattr(builtins, name):
                setattr(builtins, name, sys.exit)
        self._named = "result" if config.get("restricted") else ""
        if self._named:
            from . import restricted

            self.names["__builtins__"] = restricted.make_namespace_builtins(config["restricted"])

    def warm_up(self) -> None:
        """Run a trivial cell before the first one: the memory pages that it writes to are copied now, and not then."""
        if not self._count:
            self.run({"code": "print(end='')\nsum([1, 2]); None"})
            self._count = 0
            linecache.clearcache()

    def run(self, message: dict[str, Any], not_awaited: Callable[[], list[str]] = list) -> dict[str, Any]:
        """Run a cell and return the answer to the host.

        `not_awaited` names the functions of the host that the code has called without `await`, which is an error.
        Under the restricted policy, `result` gives the value of a cell that sets it and whose last expression has none.
        """
        self._count += 1
        filename = "<cell %d>" % self._count
        code = message["code"]
        self.files.remember()
        before = self.names.get(self._named)
        shown = None
        try:
            value = self._execute(code, filename)
            if value is None and self._named and self.names.get(self._named) is not before:
                value = self.names.get(self._named)
            if isinstance(value, types.CoroutineType):
                value.close()
                raise RuntimeError(_NOT_AWAITED.format(value.__qualname__))
            if names := not_awaited():
                raise RuntimeError(_NOT_AWAITED.format(names[0]))
            answer: dict[str, Any] = {"outcome": "ok", "exit_code": 0, **describe(value, self._limits["value_bytes"])}
            if "value" not in answer and "tagged" not in answer:
                shown = value
        except BaseException as error:
            answer = self.failure(error)
        self.at_end(shown)
        answer["artifacts"], self.contents = self.files.changes()
        answer["artifacts_left_out"] = self.files.left_out
        answer["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return answer

    def failure(self, error: BaseException) -> dict[str, Any]:
        """Write the traceback of an exception to standard error, and return the answer for a cell that raised it."""
        if isinstance(error, SystemExit):
            return _exit(error)
        outcome = "memory" if failures.is_of_memory(error) else "error"
        text, line, remark = type(error).__name__ + "\n", None, ""
        try:
            remark = failures.remark_on(error, self._limits["memory_bytes"], self._network)
            text, line = failures.explain(error)
        except BaseException:  # The exception's `__str__` may do anything.
            pass
        text += f"[{remark}]\n" if remark else ""
        try:
            sys.stderr.write(text)
        except BaseException:  # The code may have replaced `sys.stderr`.
            pass
        number = getattr(error, "errno", None) if isinstance(error, OSError) else None
        return {
            "outcome": outcome,
            "exit_code": 137 if outcome == "memory" else 1,
            "error": {
                "type": type(error).__name__,
                "message": _joined(_message(error), remark),
                "traceback": text,
                "line": line,
                "errno": number if isinstance(number, int) else None,
            },
        }

    def _execute(self, code: str, filename: str) -> Any:
        lines = f"{code}\n".splitlines(keepends=True)  # Without the last newline, markers in tracebacks are misplaced.
        linecache.cache[filename] = (len(code), None, lines, filename)
        value = None
        for part in _compile_cell(code, filename, self._flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
            self._flags |= part.co_flags & _FUTURES
            value = self._evaluate(part)
        return value

    def _evaluate(self, code: types.CodeType) -> Any:
        value = eval(code, self.names)
        if code.co_flags & _CO_COROUTINE:
            import asyncio  # Imported late: it is large, would slow down each fork, and few cells need it.

            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
            return self._loop.run_until_complete(value)
        return value


def _compile_cell(code: str, filename: str, flags: int) -> list[types.CodeType]:
    """Compile a cell to parts, of which the last one gives the value.

    A syntax tree is made only of the last statement if possible, since that takes longer than all the rest.
    """
    begin = _begin_of_last(code)
    if begin:
        try:
            first = compile(code[:begin], filename, "exec", flags, dont_inherit=True)
            if not first.co_flags & _CO_COROUTINE:  # Otherwise all of it has to run in one task.
                blank = "\n" * code.count("\n", 0, begin)  # So that the lines have their numbers.
                return [first, *_compile_last(blank + code[begin:], filename, flags)]
        except SyntaxError:  # That was not the last statement, or the code is wrong.
            pass
    return _compile_last(code, filename, flags)


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
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    parts = [compile(tree, filename, "exec", flags, dont_inherit=True)]
    if last is not None:
        parts.append(compile(last, filename, "eval", flags, dont_inherit=True))
    return parts


def _no_input(prompt: object = "", /) -> str:
    raise EOFError("input() is not available: nobody can answer here. Put the values into the code.")


def _exit(error: SystemExit) -> dict[str, Any]:
    code = error.code
    if code is None:
        code = 0
    elif not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    if code == 0:
        return {"outcome": "ok", "exit_code": 0}
    return {"outcome": "error", "exit_code": code & 0xFF, "error": {"type": "Exit", "message": "exit code %d" % code}}


def _message(error: BaseException) -> str:
    try:
        return str(error)[:10_000]
    except BaseException:
        return "its text could not be made"


def _joined(message: str, remark: str) -> str:
    if not message or not remark:
        return message or remark
    return f"{message.rstrip('.')}. {remark}"

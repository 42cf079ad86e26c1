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

from . import cpython, ending, failures, notebooks
from .cells import CO_COROUTINE, VALUE, compile_cell, compile_showing, dedented
from .files import Workspace
from .loop import Loop
from .values import describe

_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag

_NOT_AWAITED = "{0}() was called without `await`, so it did not run: write `await {0}(...)`"


class Interpreter:
    """A module named `__main__`, and the cells that run in it, whose variables are `names`, in the folder of `files`.

    `contents` has the files that the last cell has created or changed, if the host cannot read them. `at_end` is called
    at the end of each cell, with its value unless that is data or there is none; `to_text` makes the text of a value.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._limits = config["limits"]
        self._network = config["network"] or not config["lockdown"].get("use_seccomp", True)
        self.contents: list[bytes] = []
        self.at_end: Callable[[Any], None] = lambda _: None
        self.to_text: Callable[[Any], str] = repr
        self.is_notebook = False  # Then `at_end` gets each value, and tracebacks are not written to standard error.
        self._count = 0
        self._flags = 0
        self.loop = Loop()
        self._last: Any = None  # What `_` was set to.
        self._exits = cpython.exit_calls()
        self._open_files: int | None = None
        self.files = Workspace(config["workspace"], config["bring_files"])
        self._module = types.ModuleType("__main__")
        self.names = self._module.__dict__
        self.names["__builtins__"] = builtins
        sys.modules["__main__"] = self._module
        sys.argv = [""]
        for name in ("exit", "quit"):  # The usual ones, which `-S` leaves out, close standard input.
            setattr(builtins, name, sys.exit)
        self._named = "result" if config.get("restricted") else ""
        if self._named:
            from . import restricted

            self.names["__builtins__"] = restricted.make_namespace_builtins(config["restricted"])

    def warm_up(self, hurry: bool) -> None:
        """Run a trivial cell before the first one: the memory pages that it writes to are copied now, and not then.

        Not if a cell waits already.
        """
        if not self._count:
            if not hurry:
                self.run({"code": "print(end='')\nsum([1, 2]); None"})
                self._count = 0
                linecache.clearcache()
            self._open_files = ending.count_open_files()

    def run(self, message: dict[str, Any], not_awaited: Callable[[], list[str]] = list) -> dict[str, Any]:
        """Run a cell and return the answer to the host.

        `not_awaited` names the functions of the host that the code has called without `await`, which is an error.
        Under the restricted policy, `result` gives the value of a cell that sets it and whose last expression has none.
        After a cell that is `final`, the interpreter ends as after a script.
        """
        self._count += 1
        filename = "<cell %d>" % self._count
        code = message["code"]
        self.files.remember()
        before = self.names.get(self._named)
        self.names.pop("__warningregistry__", None)  # A cell that is run again warns again.
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
            described = self.loop.call(describe, value, self._limits["value_bytes"], self.to_text)
            answer: dict[str, Any] = {"outcome": "ok", "exit_code": 0, **described}
            if self.is_notebook or ("value" not in answer and "tagged" not in answer):
                shown = value
            # As in Jupyter, unless the code uses this name itself.
            if value is not None and self.names.get("_", self._last) is self._last:
                self.names["_"] = self._last = value
        except BaseException as error:
            answer = self.loop.call(self.failure, error)
        try:
            self.loop.end_cell()
        except BaseException as error:
            answer = self.loop.call(self.failure, error)
        if magics := sys.modules.get(__package__ + ".magics"):
            magics.end_cell()
        self.loop.call(self.at_end, shown)
        value = shown = None
        if message.get("final"):
            self.loop.call(self._finish, answer)
        elif self._open_files is not None:
            count = ending.count_open_files()
            if not count or count > self._open_files:
                ending.flush_files()
        answer["artifacts"], self.contents = self.files.changes()
        answer["artifacts_left_out"] = self.files.left_out
        answer["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return answer

    def failure(self, error: BaseException) -> dict[str, Any]:
        """Write the traceback of an exception to standard error, and return the answer for a cell that raised it."""
        if isinstance(error, SystemExit):
            return _exit(error)
        outcome = "memory" if failures.is_of_memory(error) else "error"
        text, line, remark, advice = type(error).__name__ + "\n", None, "", ""
        try:
            remark = failures.remark_on(error, self._limits["memory_bytes"], self._network)
            text, line = failures.explain(error)
            advice = failures.advice_on(error)
        except BaseException:  # The exception's `__str__` may do anything.
            pass
        text += f"[{remark or advice}]\n" if remark or advice else ""
        try:
            if not self.is_notebook:
                sys.stderr.write(text)
        except BaseException:  # The code may have replaced `sys.stderr`.
            pass
        number = getattr(error, "errno", None) if isinstance(error, OSError) else None
        message = _message(error)
        if remark:
            message = f"{message.rstrip('.')}. {remark}" if message else remark
        return {
            "outcome": outcome,
            "exit_code": 137 if outcome == "memory" else 1,
            "error": {
                "type": type(error).__name__,
                "message": message,
                "traceback": text,
                "line": line,
                "errno": number if isinstance(number, int) else None,
            },
        }

    def _finish(self, answer: dict[str, Any]) -> None:
        """Do what an interpreter does at its end."""
        for step in (
            self.loop.close,
            ending.wait_for_threads,
            lambda: ending.call_exit_functions(self._exits),
            lambda: ending.clear(self.names, self._open_files or 0),
        ):
            try:
                step()
            except BaseException as error:
                answer.update(self.failure(error))
                if isinstance(error, KeyboardInterrupt):  # The time is over.
                    ending.flush_files()
                    return

    def _execute(self, code: str, filename: str) -> Any:
        value = self._run(dedented(code), 0, filename)
        statements = sys.modules.get(__package__ + ".statements")
        get = statements.take() if statements else None
        return value if get is None else self._follow(get, filename)

    def _follow(self, get: Callable[..., dict[str, Any]], filename: str) -> Any:
        """Run code that comes in pieces; the value is that of the last one."""
        whole, begin, is_last = "", 0, False
        value = None
        while not is_last:
            piece = get()
            is_last, begin = piece["last"], len(whole)
            whole += piece["code"]
            if is_last and begin:
                try:
                    self._compile(whole, 0, filename)
                except SyntaxError as error:
                    get(str(error))
                    raise
            value = self._run(whole, begin, filename)
        return value

    def _run(self, code: str, begin: int, filename: str) -> Any:
        """Run code from a place on, which begins a line."""
        lines = f"{code}\n".splitlines(keepends=True)  # Without the last newline, markers in tracebacks are misplaced.
        linecache.cache[filename] = (len(code), None, lines, filename)
        value = None
        for part in self._compile(code, begin, filename):
            self._flags |= part.co_flags & _FUTURES
            value = self.loop.call(eval, part, self.names)
            if part.co_flags & CO_COROUTINE:
                result = self.loop.run(value)
                value = self.names.pop(VALUE, result)
        return value

    def _compile(self, code: str, begin: int, filename: str) -> list[types.CodeType]:
        code = "\n" * code.count("\n", 0, begin) + code[begin:]
        flags = self._flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compiled = compile_showing if notebooks.shows_all() else compile_cell
        try:
            return compiled(code, filename, flags)
        except SyntaxError as error:
            from . import magics  # Rarely used.

            translated = magics.translate(code)
            if translated == code:
                raise error
            return compiled(translated, filename, flags)


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

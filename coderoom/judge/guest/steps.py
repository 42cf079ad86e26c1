"""Performs the steps of a test: calls of the program, assignments to the test's own objects, and files.

`coderoom.judge.cases.Step` describes and checks them.
"""

from __future__ import annotations

import binascii
import builtins
import io
import os
import sys

from .values import decode

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Dict, Generator, List, Tuple


async def _wait() -> None:
    pass


_waiting = _wait()
COROUTINE = type(_waiting)
_waiting.close()

BUILTINS = frozenset(
    str.split(
        "abs bool bytes chr dict divmod enumerate float frozenset int iter len list max min next ord pow range repr "
        "reversed round set sorted str sum tuple zip random.seed"
    )
)
"""What steps may call besides the program."""

_ENVIRONMENT = "os.environ."


class CallError(Exception):
    """A call raised `error`, which may be one that no generator can raise."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class StepError(CallError):
    """A step before the call raised `error`. A test cannot expect that."""


def ask(function: Any, positional: Tuple[Any, ...], named: Dict[str, Any]) -> Generator[Any, Any, Any]:
    """Ask for a call: whoever makes it sends its result and its exception. The result of a coroutine is awaited."""
    value, error = yield function, positional, named
    if type(value) is COROUTINE:
        import asyncio

        value, error = yield asyncio.run, (value,), {}
    if error is not None:
        raise CallError(error)
    return value


class Steps:
    """The objects of a test by their names. The steps may call some `functions` of the program."""

    def __init__(self, program: Dict[str, Any], functions: List[str]) -> None:
        self._program = program
        self._functions = functions
        self._made: Dict[int, Any] = {}  # Objects of the test's own, by their ids.
        self.names: Dict[str, Any] = {}

    def perform(self, steps: List[Dict[str, Any]]) -> Generator[Any, Any, Any]:
        """Perform steps, whose calls are asked for; return the value of the last call."""
        value = None
        for step in steps:
            if "call" in step:
                value = yield from self._call(step)
                if "name" in step:
                    self.names[step["name"]] = value
            elif "assign" in step:
                place, data = step["assign"], step.get("value")
                made = self.decode(data, "value")
                owner, _, attribute = place.rpartition(".")
                if place.startswith(_ENVIRONMENT):
                    os.environ[place[len(_ENVIRONMENT) :]] = made
                elif not owner:
                    self.names[place] = made
                    if not (isinstance(data, dict) and "$name" in data):
                        self._made[id(made)] = made
                else:
                    found = self._find(owner)
                    if id(found) not in self._made:
                        raise TypeError("%r was not made by a step, so no step may change it" % owner)
                    setattr(found, attribute, made)
            else:
                _write(step)
        return value

    def decode(self, data: Any, root: str) -> Any:
        """Decode tagged data, in which `$name` stands for an object of the test or a function of the program."""
        return decode(data, root, self._find)

    def _call(self, step: Dict[str, Any]) -> Generator[Any, Any, Any]:
        function = self._find(step["call"])
        args = [self.decode(each, "args") for each in step.get("args", ())]
        kwargs = {name: self.decode(each, name) for name, each in step.get("kwargs", {}).items()}
        value = yield from ask(function, tuple(args), kwargs)
        if type(value) is function:  # Made by its class, so it cannot be an object that the program keeps.
            self._made[id(value)] = value
        return value

    def _find(self, path: str) -> Any:
        """The object that a path names: a method only of objects and classes of the program, or `send`."""
        if path == "random.seed":
            return __import__("random").seed
        if path in BUILTINS and path not in self._functions:
            return getattr(builtins, path)
        first, *rest = path.split(".")
        if first in self.names:
            found = self.names[first]
        else:
            found = self._program.get(first)
            if first not in self._functions and not (isinstance(found, type) and self._is_own(found)):
                raise NameError("name %r is not defined" % first)
        for part in rest:
            kind = found if isinstance(found, type) else type(found)
            if not self._is_own(kind) and id(found) not in self._made and part != "send":
                raise TypeError("%r is not an object of the program's classes" % first)
            found = getattr(found, part)
        return found

    def _is_own(self, kind: Any) -> bool:
        return bool(kind.__module__ == self._program["__name__"])


def undo(job: Dict[str, Any], environment: Dict[str, str], given: Any) -> None:
    """Restore what the steps of a job have set outside of the program: variables of the environment, and the input."""
    for step in [*job.get("setup", ()), *job.get("then", ())]:
        place = step.get("assign", "")
        if place.startswith(_ENVIRONMENT):
            name = place[len(_ENVIRONMENT) :]
            os.environ.pop(name, None)
            os.environ.update({name: environment[name]} if name in environment else {})
        elif step.get("file") == "-":
            sys.stdin = given


def _read_line(prompt: object = "", /) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError("there are no more lines")
    return line.rstrip("\n")


def _write(step: Dict[str, Any]) -> None:
    content = binascii.a2b_base64(step["bytes"]) if "bytes" in step else step.get("text", "").encode()
    if step["file"] == "-":
        sys.stdin = io.TextIOWrapper(io.BytesIO(content), "utf-8")
        builtins.input = _read_line
        return
    folder = os.path.dirname(step["file"])
    if folder:
        os.makedirs(folder, exist_ok=True)
    with open(step["file"], "wb") as file:
        file.write(content)

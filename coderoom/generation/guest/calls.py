"""Calls functions under test, evaluates properties, and returns the answers as JSON text."""

from __future__ import annotations

import builtins
import json
import math
import os
import sys
import time
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .reading import decode
from .setup import SetupError, compile_setup, run_setup
from .values import Encoder

__all__ = [
    "Guard",
    "answer",
    "answer_now",
    "budget",
    "make_call",
    "warm",
]

_PACKAGE = __name__.rpartition(".")[0]
_ASKING = frozenset(["input", "open", "print", "_"])  # Tests of functions that use these must replace them.
_WRITING = ("write", "_exit", "fork")
_none = object()


class Guard:
    """Detects whether functions, built-ins or the reporting of answers were replaced during setup.

    The source of setup code was checked before, so this is a second line of defence.

    Args:
        names: The program's namespace.
    """

    def __init__(self, names: Dict[str, Any]) -> None:
        self._builtins = {**builtins.__dict__}
        self._writing = [getattr(os, name) for name in _WRITING]
        self._codes = [*_codes_of(names), *(each for names in _runners() for each in _codes_of(names))]

    def broken(self) -> str:
        """What was replaced; empty if nothing was."""
        now = builtins.__dict__
        for name in {**self._builtins, **now}:
            if name not in _ASKING and now.get(name, _none) is not self._builtins.get(name, _none):
                return "built-in functions"
        if any(function.__code__ is not code for function, code in self._codes):
            return "the code of functions"
        return "" if self._writing == [getattr(os, name) for name in _WRITING] else "the reporting of answers"


def _runners() -> Iterator[Dict[str, Any]]:
    """The names of the modules of the harness."""
    for name, module in {**sys.modules}.items():
        if type(name) is str and name.startswith(_PACKAGE + "."):
            yield vars(module)
            yield from [{**vars(each)} for each in vars(module).values() if type(each) is type]


def _codes_of(names: Dict[str, Any]) -> List[Tuple[Any, Any]]:
    return [(each, each.__code__) for each in names.values() if type(each) is types.FunctionType]


_MOST_TOLD = 4_000
_MOST_FRAMES = 8
budget = {"text": 400_000}
# A metaclass may say something else.
_classes_of = type.__dict__["__mro__"].__get__
_name_of = type.__dict__["__name__"].__get__

Call = Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any], Optional[Dict[str, Any]]]


def _make_dumps() -> Callable[[Any], str]:
    """Like `json.dumps`, with an encoder that is created once and not in every fork."""
    encoder = json.JSONEncoder(separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    text = json.encoder.encode_basestring_ascii
    parts = make(None, encoder.default, text, None, ":", ",", False, False, False)
    return lambda data: "".join(parts(data, 0))


_dumps = _make_dumps()


def make_call(job: Dict[str, Any]) -> Call:
    """The function to call for a job, its arguments, and the arguments to report after the call, by name.

    Args:
        job: A `function`, its `inputs` and `setup`, and `after` if the inputs are reported after the call; or a
            `property`, the `result`, the `inputs`, and the inputs `after` the call.
    """
    inputs = {name: decode(data, name) for name, data in job["inputs"].items()}
    if "property" in job:
        look = compile(job["property"], "<property>", "eval")
        names = {**inputs, "result": decode(job["result"], "result")}
        if "after" in job:
            names["after"] = {name: decode(data, "after[%r]" % name) for name, data in job["after"].items()}
        return _look, (look, names), {}, None
    names = sys.modules["__main__"].__dict__
    if job.get("setup"):
        after: Dict[str, Any] = {}
        arguments = (compile_setup(job["setup"]), job["function"], job["functions"], inputs, after)
        return _with_setup, arguments, {}, after if "after" in job else None
    if job["function"] not in names:
        raise NameError("name %r is not defined" % job["function"])
    function = names[job["function"]]
    return (function, *_arranged(function, inputs), inputs if "after" in job else None)


def answer(call: Call, encoder: Encoder) -> str:
    """Make a call and return its answer."""
    function, positional, named, after = call
    try:
        value = function(*positional, **named)
        if type(value).__name__ == "coroutine":
            import asyncio

            value = asyncio.run(value)
        refused = type(value) is _Refused
        report = {"value": value.report if refused else encoder.encode(value)}
        if after is not None and not refused:
            report["after"] = {name: encoder.encode(item) for name, item in after.items()}
    except BaseException as error:
        report = _failed(error)
    text = _dumps(report)
    if len(text) > budget["text"]:
        why = "it has more than %d characters as data" % budget["text"]
        text = _dumps({"value": {"$opaque": {"type": "value", "why": why}}})
    return text


def answer_now(job: Dict[str, Any]) -> str:
    """Run a whole job."""
    try:
        call = make_call(job)
    except BaseException as error:
        return _dumps(_failed(error))
    return answer(call, Encoder())


def warm() -> None:
    """Warm up what every call does, so that forks inherit it."""
    for value in (1, 1.5, "text", True, None, [1, 2], {"key": 1}, (1, 2), {1}, b"bytes"):
        for _ in range(10):
            answer((_same, (), {"value": value}, None), Encoder())
    for _ in range(10):
        answer((_fail, (), {}, None), Encoder())
    time.monotonic()


def _same(value: Any) -> Any:
    return value


def _fail() -> None:
    raise ValueError("nothing")


def _arranged(function: Any, inputs: Dict[str, Any]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """The arguments by position and by name: some parameters are positional only."""
    code = getattr(function, "__code__", None)
    only = code.co_varnames[: getattr(code, "co_posonlyargcount", 0)] if code is not None else ()
    named = dict(inputs)
    return tuple([named.pop(name) for name in only if name in named]), named


class _Refused:
    """Replaces a result. It equals nothing and is not an exception that a test may expect."""

    def __init__(self, what: str) -> None:
        self.report = {"$opaque": {"type": "result", "why": "setup code may not change " + what}}


def _with_setup(setup: Any, name: str, functions: List[str], inputs: Dict[str, Any], after: Dict[str, Any]) -> Any:
    names = sys.modules["__main__"].__dict__
    if name not in names:
        raise NameError("name %r is not defined" % name)
    function = names[name]
    guard = Guard(names)
    given = run_setup(setup, names, functions, inputs)
    what = guard.broken()
    if not what:
        after.update(given)
        positional, named = _arranged(function, given)
        value = function(*positional, **named)
        what = guard.broken()
    return _Refused(what) if what else value


def _look(look: Any, names: Dict[str, Any]) -> bool:
    names = {"__builtins__": builtins, "math": math, **names}
    found = eval(look, names)
    kind = type(found).__name__
    if kind not in ("bool", "bool_"):
        raise TypeError("a property must be True or False, not of the type %s" % kind)
    return bool(found)


def _failed(error: BaseException) -> Dict[str, Any]:
    """The report of an exception. A test cannot expect exceptions of setup code."""
    if type(error) is not SetupError:
        return {"error": _explain(error)}
    report = _explain(error.error)
    kind = _name_of(type(error.error))
    return {"error": {**report, "types": [], "base": "SetupError", "message": "%s: %s" % (kind, report["message"])}}


def _explain(error: BaseException) -> Dict[str, Any]:
    """The report of an exception: its class, base classes, message, and the frames of the code under test."""
    kind = type(error)
    classes = [(_name_of(each), each) for each in _classes_of(kind)]
    own = [name for name, each in classes if getattr(builtins, name, None) is not each]
    base = next(name for name, each in classes if getattr(builtins, name, None) is each)
    try:
        message = str(error)[:_MOST_TOLD]
    except BaseException:
        message = "its message could not be read"
    return {"types": own[:20], "base": base, "message": message, "trace": _trace(error)}


def _trace(error: BaseException) -> List[List[Any]]:
    frames: List[List[Any]] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(("<cell ", "<setup>", "<property>")):
            frames.append([code.co_filename, trace.tb_lineno, code.co_name])
        trace = trace.tb_next
    return frames[:_MOST_FRAMES] + frames[_MOST_FRAMES:][-_MOST_FRAMES:]

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
]

_PACKAGE = __name__.rpartition(".")[0]
_ASKING = frozenset(["input", "open", "print", "_"])  # Whoever tests what these are for has to replace them.
_WRITING = ("write", "_exit", "fork")
_none = object()


class Guard:
    """Finds out whether something else does the work than what was loaded.

    Setup code was read before, and reaches none of this; what the program's own functions change is theirs.

    Args:
        names: The program's namespace.
    """

    def __init__(self, names: Dict[str, Any]) -> None:
        self._builtins = {**builtins.__dict__}
        self._writing = [getattr(os, name) for name in _WRITING]
        self._codes = [*_codes_of(names), *(each for names in _runners() for each in _codes_of(names))]

    def broken(self) -> str:
        """What was changed; empty if nothing was."""
        now = builtins.__dict__
        for name in {**self._builtins, **now}:
            if name not in _ASKING and now.get(name, _none) is not self._builtins.get(name, _none):
                return "what is built in"
        if any(function.__code__ is not code for function, code in self._codes):
            return "what functions do"
        return "" if self._writing == [getattr(os, name) for name in _WRITING] else "how answers are told"


def _runners() -> Iterator[Dict[str, Any]]:
    """The names of the modules that run the program here."""
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
    """What `json.dumps` does, made once: every fork would have to make it anew."""
    encoder = json.JSONEncoder(separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    text = json.encoder.encode_basestring_ascii
    parts = make(None, encoder.default, text, None, ":", ",", False, False, False)
    return lambda data: "".join(parts(data, 0))


_dumps = _make_dumps()


def make_call(job: Dict[str, Any]) -> Call:
    """What is to be called for a job, with which arguments, and those that are to be told of after the call, by name.

    Args:
        job: A `function`, its `inputs` and `setup`, and `after` if the inputs are looked at after the call; or a
            `property`, the `result`, the `inputs`, and what they were `after` the call.
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
    """Make a call, and tell what came of it."""
    function, positional, named, after = call
    try:
        value = function(*positional, **named)
        if type(value).__name__ == "coroutine":
            import asyncio

            value = asyncio.run(value)
        refused = type(value) is _Refused
        told = {"value": value.told if refused else encoder.encode(value)}
        if after is not None and not refused:
            told["after"] = {name: encoder.encode(item) for name, item in after.items()}
    except BaseException as error:
        told = _failed(error)
    text = _dumps(told)
    if len(text) > budget["text"]:
        why = "as data it has more than %d characters" % budget["text"]
        text = _dumps({"value": {"$opaque": {"type": "value", "why": why}}})
    return text


def answer_now(job: Dict[str, Any]) -> str:
    """Do a job from its beginning to its end."""
    try:
        call = make_call(job)
    except BaseException as error:
        return _dumps(_failed(error))
    return answer(call, Encoder())


def _warm() -> None:
    """Do what every call does a few times, so that forks find it done."""
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
    """The arguments by position and by name: some functions take some only by position."""
    code = getattr(function, "__code__", None)
    only = code.co_varnames[: getattr(code, "co_posonlyargcount", 0)] if code is not None else ()
    named = dict(inputs)
    return tuple([named.pop(name) for name in only if name in named]), named


class _Refused:
    """In the place of a result; it equals nothing, and no exception that may be expected is raised."""

    def __init__(self, what: str) -> None:
        self.told = {"$opaque": {"type": "result", "why": "setup code may not change " + what}}


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
        raise TypeError("a property has to be True or False, and this one is of the type %s" % kind)
    return bool(found)


def _failed(error: BaseException) -> Dict[str, Any]:
    """What is told of an exception; one of the setup code is none that a test may expect."""
    if type(error) is not SetupError:
        return {"error": _explain(error)}
    told = _explain(error.error)
    kind = _name_of(type(error.error))
    return {"error": {**told, "types": [], "base": "SetupError", "message": "%s: %s" % (kind, told["message"])}}


def _explain(error: BaseException) -> Dict[str, Any]:
    """What is told of an exception: its class, those above it, its text, and the frames of the code under test."""
    kind = type(error)
    classes = [(_name_of(each), each) for each in _classes_of(kind)]
    own = [name for name, each in classes if getattr(builtins, name, None) is not each]
    base = next(name for name, each in classes if getattr(builtins, name, None) is each)
    try:
        message = str(error)[:_MOST_TOLD]
    except BaseException:
        message = "its text could not be made"
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


_warm()

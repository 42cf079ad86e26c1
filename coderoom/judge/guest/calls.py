"""Calls functions under test, evaluates properties, and returns the answers as JSON text."""

from __future__ import annotations

import builtins
import math
import os
import sys
import time
from itertools import islice

from .steps import CallError, StepError, Steps, ask
from .values import Encoder, classes_of, decode, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Generator, List, Optional, Sequence, Tuple

    Call = Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any], Optional[Dict[str, Any]]]
    Request = Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any]]  # For a call.

__all__ = [
    "answer_now",
    "answering",
    "answering_now",
    "budget",
    "depth",
    "drive",
    "error_report",
    "make_call",
    "make_text",
    "report_of",
    "space",
    "texts",
    "warm",
]

_VARARGS, _VARKEYWORDS = 4, 8  # Flags of code objects.
_MOST_TOLD = 4_000
_MOST_FRAMES = 8
_MOST_WRAPPED = 9
budget = {"text": 400_000}
# The module with the functions, and how to call them: by position (0), by name (1), or by name but the first (2).
space: Dict[str, Any] = {"program": "__main__", "by_name": 0}
_names = dict(vars(builtins))
_limit, _set_limit = sys.getrecursionlimit, sys.setrecursionlimit
texts: List[Callable[[Dict[str, Any]], str]] = []


def _make_dumps() -> Callable[[Any], str]:
    """Like `json.dumps`, with an encoder that is created once and not in every fork."""
    try:
        from _json import encode_basestring_ascii, make_encoder  # In a new process, importing `json` would take long.
    except ImportError:
        import json

        return json.JSONEncoder(separators=(",", ":")).encode
    parts = make_encoder(None, repr, encode_basestring_ascii, None, ":", ",", False, False, False)
    return lambda data: "".join(parts(data, 0))


_dumps = _make_dumps()


def make_call(job: Dict[str, Any]) -> Call:
    """The function to call for a job, its arguments, and the arguments to report after the call, by name.

    `coderoom.judge.Job` describes jobs.
    """
    if "functions" in job:
        after: Dict[str, Any] = {}
        return _with_steps, (job, after), {}, after if "after" in job else None
    if "property" in job:
        given = {**job["inputs"], "result": job["result"]}
        names = {each: decode(data, each, judged=True) for each, data in given.items()}
        if "after" in job:
            later = job["after"].items()
            names["after"] = {each: decode(data, "after[%r]" % each, judged=True) for each, data in later}
        return _look, (compile(job["property"], "<property>", "eval"), names), {}, None
    inputs = {name: decode(data, name) for name, data in job["inputs"].items()}
    function = _function(job["function"])
    return (function, *_arranged(job["function"], function, inputs), inputs if "after" in job else None)


def _function(name: str) -> Any:
    module = sys.modules[space["program"]]
    if type(module) is not type(sys):
        raise TypeError("the program has replaced its module by something else")
    if name not in module.__dict__:
        raise NameError("name %r is not defined" % name)
    return module.__dict__[name]


def depth() -> int:
    """How many calls there are around the one that asks."""
    frame, found = sys._getframe(1), 0
    while frame.f_back is not None:
        frame, found = frame.f_back, found + 1
    return found


def drive(work: Generator[Request, Any, Any]) -> Any:
    """Make the calls that are asked for; return the result."""
    try:
        function, positional, named = next(work)
        done: Any = None
        while True:
            try:
                done = function(*positional, **named), None
            except BaseException as error:
                done = None, error
            function, positional, named = work.send(done)
            done = None
    except StopIteration as end:
        return end.value


def answering(
    call: Call,
    encoder: Encoder,
    kept: Optional[List[Any]] = None,
    around: int = 0,
    text: Sequence[Callable[..., str]] = texts,
) -> Generator[Request, Any, str]:
    """Ask for a call, below which there are `around` others, and return its answer.

    `kept` gets the returned value and the arguments after the call.
    """
    function, positional, named, after = call
    limit = _limit()
    raised = limit + around  # So that as many calls are left as in a script.
    try:
        _set_limit(raised)
        value = yield from (function(*positional) if function is _with_steps else ask(function, positional, named))
        most = encoder.most_items(value)
        if most is not None and "result" not in encoder.judged:  # An endless one ends here.
            items = yield from ask(islice, (value, most), {})
            value = yield from ask(_names["list"], (items,), {})
    except BaseException as error:
        report = _failed(error)
    else:
        report = report_of(value, after, encoder)
        if kept is not None:
            kept.append((value, after, (positional, named)))
    finally:
        if _limit() == raised:
            _set_limit(limit)
    return text[0](report)


def report_of(value: Any, after: Optional[Dict[str, Any]], encoder: Encoder) -> Dict[str, Any]:
    """The report of a returned value, and of the arguments after the call."""
    try:
        report = {"value": encoder.encode(value)}
        if after is not None:
            report["after"] = {name: encoder.encode(item) for name, item in after.items()}
        return report
    except BaseException:  # The function itself has not raised it.
        return {"value": {"$opaque": {"type": "value", "why": "reading it raises an exception"}}}


def error_report(message: str) -> Dict[str, Any]:
    """The report of an error that the code has not raised."""
    return {"error": {"types": [], "base": "RuntimeError", "message": message, "trace": []}}


def answering_now(
    job: Dict[str, Any], kept: Optional[List[Any]], around: int, answering: Callable[..., Any] = answering
) -> Generator[Request, Any, str]:
    """Ask for the calls of a job, as `answering`, and return its answer."""
    try:
        call = make_call(job)
    except BaseException as error:
        return _dumps(_failed(error))
    text: str = yield from answering(call, Encoder(judged=job.get("judged", "")), kept, around)
    return text


def answer_now(job: Dict[str, Any], drive: Callable[..., Any] = drive, work: Callable[..., Any] = answering_now) -> str:
    """Run a whole job."""
    text: str = drive(work(job, None, depth() + 1))
    return text


def warm() -> None:
    """Warm up what every call does, so that forks inherit it."""
    for value in (1, 1.5, "text", True, None, [1, 2], {"key": 1}, (1, 2), {1}, b"bytes"):
        for _ in range(10):
            drive(answering((_echo, (), {"value": value}, None), Encoder()))
    for _ in range(10):
        drive(answering((_fail, (), {}, None), Encoder()))
    time.monotonic()


def _echo(value: Any) -> Any:
    return value


def _fail() -> None:
    raise ValueError("nothing")


def _behind(function: Any, name: str) -> Any:
    """What a decorator has wrapped: it says so, or has a function of this name; `None` if it is not a decorator."""
    if hasattr(function, "__wrapped__"):
        return function.__wrapped__
    found = [] if isinstance(function, type) else list(getattr(function, "__dict__", {}).values())
    for cell in getattr(function, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # It is empty.
            pass
    for inner in found:
        if getattr(inner, "__name__", None) == name and hasattr(inner, "__code__"):
            return inner
    return None


def _arranged(name: str, function: Any, inputs: Dict[str, Any]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """The arguments by position and by name: some parameters are positional only, `*` and `**` take several."""
    named = dict(inputs)
    outer, by_type = getattr(function, "__code__", None), hasattr(function, "dispatch")
    for _ in range(_MOST_WRAPPED):
        inner = _behind(function, name)
        if inner is None:
            break
        function = inner
    skipped = isinstance(function, type)
    code = getattr(function.__init__ if skipped else function, "__code__", None)
    if code is None:  # Perhaps an object that can be called.
        code, skipped = getattr(type(function).__call__, "__code__", None), True
    if code is None:
        return (), named
    names = code.co_varnames[skipped:]
    first, both = code.co_argcount - skipped, code.co_argcount + code.co_kwonlyargcount - skipped
    several = names[both] if code.co_flags & _VARARGS else None
    others = names[both + (several is not None)] if code.co_flags & _VARKEYWORDS else None
    unknown = several is not None and not set(named) & {*names[: both + 2]}
    if unknown and (others is None or not space["by_name"]):
        return tuple(named.values()), {}  # A decorator has the place of the function: its inputs are in order.
    takes_names = not by_type and (outer is None or outer.co_flags & _VARKEYWORDS or outer is code)
    if several not in named and space["by_name"] and takes_names:
        first = max(getattr(code, "co_posonlyargcount", 0) - skipped, min(first, space["by_name"] - 1))
    positional = []
    for name in names[:first]:
        if name not in named:
            break
        positional.append(named.pop(name))
    if several in named:
        given = named.pop(several)
        positional += given if type(given) in (list, tuple) else [given]
    if others in named and type(named[others]) is dict:
        named.update(named.pop(others))
    return tuple(positional), named


def _with_steps(job: Dict[str, Any], after: Dict[str, Any]) -> Generator[Request, Any, Any]:
    """Perform the steps before the call, the call, and the steps after it, the last of which gives the result."""
    function = _function(job["function"])
    steps = Steps(sys.modules[space["program"]].__dict__, job["functions"])
    try:
        yield from steps.perform(job.get("setup", []))
        after.update((name, steps.decode(data, name)) for name, data in job["inputs"].items())
    except BaseException as error:
        raise StepError(error.error if type(error) is CallError else error) from None
    value = yield from ask(function, *_arranged(job["function"], function, after))
    if "then" in job:
        steps.names["result"] = value
        value = yield from steps.perform(job["then"])
    return value


def _look(look: Any, names: Dict[str, Any]) -> bool:
    names = {"__builtins__": builtins, "math": math, **names}
    found = eval(look, names)
    kind = type(found).__name__
    if kind not in ("bool", "bool_"):
        raise TypeError("a property must be True or False, not of the type %s" % kind)
    return bool(found)


def _failed(error: BaseException) -> Dict[str, Any]:
    """The report of an exception. A test cannot expect one of a step before the call."""
    if type(error) is CallError:
        error = error.error
    if type(error) is not StepError:
        return {"error": _explain(error)}
    report = _explain(error.error)
    kind = name_of(type(error.error))
    return {"error": {**report, "types": [], "base": "StepError", "message": "%s: %s" % (kind, report["message"])}}


def _explain(error: BaseException) -> Dict[str, Any]:
    """The report of an exception: its class, base classes, message, and the frames of the code under test."""
    kind = type(error)
    classes = [(name_of(each), each) for each in classes_of(kind)]
    own = [name for name, each in classes if _names.get(name) is not each]
    base = next(name for name, each in classes if _names.get(name) is each)
    try:
        message = str(error)[:_MOST_TOLD]
    except BaseException:
        message = "its message could not be read"
    frames: List[List[Any]] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(("<cell ", "<property>")):
            frames.append([code.co_filename, trace.tb_lineno, code.co_name])
        trace = trace.tb_next
    frames = frames[:_MOST_FRAMES] + frames[_MOST_FRAMES:][-_MOST_FRAMES:]
    return {"types": own[:20], "base": base, "message": message, "trace": frames}


def make_text(*spaces: Dict[str, Any]) -> Callable[[Dict[str, Any]], str]:
    """The text of a report, from functions here and in other namespaces that code under test has not changed."""
    parts: List[Tuple[Any, str, Any]] = [(vars(os), "write", os.write)]
    for names in (globals(), *spaces, *map(vars, Encoder.__mro__[:-1])):
        parts += [
            (names, name, each)
            for name, each in list(names.items())
            if type(each) is type(make_text) and name != "answer_now"  # Nobody looks it up here.
        ]
    parts += [
        (globals(), name, globals()[name]) for name in ("_dumps", "_names", "_limit", "_set_limit", "islice", "Encoder")
    ]
    dumps, error = _dumps, error_report

    def text(report: Dict[str, Any]) -> str:
        if not all(names.get(name) is each for names, name, each in parts):
            report = error("the code changes what tests it")
        found = dumps(report)
        if len(found) > budget["text"]:
            why = "it has more than %d characters as data" % budget["text"]
            found = dumps({"value": {"$opaque": {"type": "value", "why": why}}})
        return found

    return text


texts.append(make_text())

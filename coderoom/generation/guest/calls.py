"""Calls functions under test, evaluates properties, and returns the answers as JSON text."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import atexit
import builtins
import math
import os
import sys
import time
from itertools import islice

from .steps import CallError, StepError, Steps, ask, undo
from .values import Encoder, classes_of, decode, keep_libraries, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Generator, List, Optional, Sequence, Set, Tuple

    Call = Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any], Optional[Dict[str, Any]]]
    _Request = Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any]]  # For a call.
    _Named = Tuple[Any, str, Any]  # A namespace, a name in it, and what it stands for.

__all__ = [
    "answer_now",
    "answering",
    "budget",
    "drive",
    "make_call",
    "scatter",
    "serve",
    "space",
    "warm",
]

_VARARGS, _VARKEYWORDS = 4, 8  # Flags of code objects.
_MOST_TOLD = 4_000
_MOST_FRAMES = 8
_MOST_WRAPPED = 9
_SECONDS_AGAIN = 0.02
_filling: List[List[Any]] = []  # Keeps objects of `scatter`.
budget = {"text": 400_000}
# The module with the functions, and how to call them: by position (0), by name (1), or by name but the first (2).
space: Dict[str, Any] = {"program": "__main__", "by_name": 0}
_names = dict(vars(builtins))
_limit, _set_limit = sys.getrecursionlimit, sys.setrecursionlimit
_texts: List[Callable[[Dict[str, Any]], str]] = []


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

    `coderoom.generation.languages.Job` describes jobs.
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


def _depth() -> int:
    """How many calls there are around the one that asks."""
    frame, found = sys._getframe(1), 0
    while frame.f_back is not None:
        frame, found = frame.f_back, found + 1
    return found


def drive(work: Generator[_Request, Any, Any]) -> Any:
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
    text: Sequence[Callable[..., str]] = _texts,
) -> Generator[_Request, Any, str]:
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
        report = _report(value, after, encoder)
        if kept is not None:
            kept.append((value, after))
    finally:
        if _limit() == raised:
            _set_limit(limit)
    return text[0](report)


def _report(value: Any, after: Optional[Dict[str, Any]], encoder: Encoder) -> Dict[str, Any]:
    try:
        report = {"value": encoder.encode(value)}
        if after is not None:
            report["after"] = {name: encoder.encode(item) for name, item in after.items()}
        return report
    except BaseException:  # The function itself has not raised it.
        return {"value": {"$opaque": {"type": "value", "why": "reading it raises an exception"}}}


def _error(message: str) -> Dict[str, Any]:
    return {"error": {"types": [], "base": "RuntimeError", "message": message, "trace": []}}


def _answering_now(
    job: Dict[str, Any], kept: Optional[List[Any]], around: int, answering: Callable[..., Any] = answering
) -> Generator[_Request, Any, str]:
    try:
        call = make_call(job)
    except BaseException as error:
        return _dumps(_failed(error))
    text: str = yield from answering(call, Encoder(judged=job.get("judged", "")), kept, around)
    return text


def answer_now(
    job: Dict[str, Any], drive: Callable[..., Any] = drive, work: Callable[..., Any] = _answering_now
) -> str:
    """Run a whole job."""
    text: str = drive(work(job, None, _depth() + 1))
    return text


def serve(
    jobs: List[Dict[str, Any]],
    longest: int,
    writer: int,
    folder: str,
    name: str,
    linger: float,
    by_name: int,
    rounds: int,
) -> Generator[_Request, Any, None]:
    """Import the program as a module from a folder, ask for the calls of jobs, and write a line for each.

    Each job has a folder of its own. Then there is a line for each other answer of a job: its number and the answer. It
    may come from a later run, or the value has changed since it was returned. Another line, `left ...`, says what the
    program has left behind. When Python exits, one more line is written: the program has not ended the process.

    After the jobs it waits `linger` seconds, since the program could end the process later. It runs the jobs `rounds`
    times, slow ones at most twice, with arguments as `by_name` says (see `space`) where possible.
    """
    write, text_of, answer_of, now, around = os.write, _texts[0], _answering_now, time.monotonic, _depth() - 1
    atexit.register(write, writer, b"end\n")  # What is registered first runs last.
    os.chdir(folder)
    sys.path.insert(0, folder)
    for each in [each for each in sys.modules if each.startswith(__package__)]:
        del sys.modules[each]  # The program must not see where it runs.
    budget.update(text=longest)
    space.update(program=name, by_name=by_name)
    with open(name + ".py", encoding="utf-8", errors="surrogatepass") as file:
        source = file.read()
    keep_libraries(source)
    before = _of_libraries(source)
    hooks: List[str] = []
    sys.addaudithook(lambda event, _: hooks.append(event) if event == "sys.addaudithook" else None)
    __import__(name)
    returned: List[Tuple[Set[str], List[Any]]] = []
    places = map(str, range(rounds * len(jobs)))

    def tell(line: str) -> None:
        found = memoryview(line.encode() + b"\n")
        while found:
            found = found[write(writer, found) :]

    def run(job: Dict[str, Any], kept: Optional[List[Any]] = None) -> Generator[_Request, Any, str]:
        place = next(places)
        os.mkdir(place)
        os.chdir(place)
        os.environ["TMPDIR"] = os.getcwd()
        environment, given = dict(os.environ), sys.stdin
        text = yield from answer_of(job, kept, around)
        undo(job, environment, given)
        os.chdir("..")
        return text

    def tell_other(number: int, text: str) -> None:
        known = returned[number][0]
        if text not in known:
            known.add(text)
            tell("%d %s" % (number, text))

    for job in jobs:
        kept: List[Any] = []
        text = yield from run(job, kept)
        tell(text)
        returned.append(({text}, kept))
    time.sleep(linger)
    for number, (known, kept) in enumerate(returned):
        value, after = kept[0] if kept else (None, None)
        if kept and text_of(_report(value, after, Encoder(judged=jobs[number].get("judged", "")))) not in known:
            tell_other(number, _dumps(_error("the returned value changes later")))
    end = now() + _SECONDS_AGAIN
    for _ in range(rounds - 1):
        for number, job in enumerate(jobs):
            tell_other(number, (yield from run(job)))
        if now() > end:
            break
    left = _left(before) or ("an audit hook" if hooks else "")
    if left:
        tell("left " + left)


def _of_libraries(source: str) -> List[_Named]:
    """The functions and classes of the standard library that are loaded or that code imports, before it runs."""
    words: Set[str] = {*sys.modules}
    for line in source.splitlines():
        if "import" in line or "modules" in line:
            found = "".join(each if each.isalnum() or each in "_." else " " for each in line).split()
            words.update(found, ["%s.%s" % (found[1], each) for each in found[3:] if found[0] == "from"])
    known = {*getattr(sys, "stdlib_module_names", ())} - {"antigravity", "this"}
    spaces: List[Any] = []
    modules: List[_Named] = []
    for name in [each for each in words if each.partition(".")[0] in known]:
        try:
            __import__(name)
            modules.append((sys.modules, name, sys.modules[name]))
            spaces.append(vars(sys.modules[name]))
        except Exception:  # It is not on this system.
            pass
    spaces += [vars(kind) for names in spaces for kind in names.values() if isinstance(kind, type)]
    # Steps of a test set `input`; programs set hooks.
    return modules + [(names, name, each) for names in spaces for name, each in names.items()
                      if callable(each) and name != "input" and not name.endswith("hook")]  # fmt: skip


def _left(before: List[_Named]) -> str:
    """What a program has left behind that can change or end the process later; empty if nothing."""
    if any(_signal.getitimer(which)[0] for which in (0, 1, 2)):
        return "a timer"
    if _thread._count() > 0:
        return "a thread"
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return "a function that traces calls"
    changed = [name for names, name, each in before if names.get(name) is not each]
    if changed:
        return "another %s instead of the one of Python" % changed[0]
    try:
        os.waitpid(-1, os.WNOHANG)
        return "a process"
    except ChildProcessError:
        return ""


def scatter() -> None:
    """Put the objects that follow at random addresses: on some systems, those of new processes have the same ones."""
    for size in (512, *range(512, 0, -16)):  # The size classes of Python's allocator, of which pools have 16 KiB.
        most = 65_536 if _filling else 1_048_576
        count = 32_768 // size + int.from_bytes(os.urandom(4), "big") % (most // size)
        made = [object() if size == 16 else complex(1, 1) if size == 32 else bytes(size - 33) for _ in range(count)]
        flips = os.urandom(count)
        _filling.append([made[number] for number in range(count) if flips[number] & 1])
        made.reverse()  # The newest is freed last, so its place is taken first.
    _filling.append([[] for _ in range(int.from_bytes(os.urandom(2), "big") % 700)])  # When garbage is collected.


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
        positional += named.pop(several)
    if others in named and type(named[others]) is dict:
        named.update(named.pop(others))
    return tuple(positional), named


def _with_steps(job: Dict[str, Any], after: Dict[str, Any]) -> Generator[_Request, Any, Any]:
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
    return {"types": own[:20], "base": base, "message": message, "trace": _trace(error)}


def _trace(error: BaseException) -> List[List[Any]]:
    frames: List[List[Any]] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(("<cell ", "<property>")):
            frames.append([code.co_filename, trace.tb_lineno, code.co_name])
        trace = trace.tb_next
    return frames[:_MOST_FRAMES] + frames[_MOST_FRAMES:][-_MOST_FRAMES:]


def _make_text() -> Callable[[Dict[str, Any]], str]:
    """The text of a report, from functions that code under test has not changed."""
    parts: List[Tuple[Any, str, Any]] = [(vars(os), "write", os.write)]
    for names in (globals(), *map(vars, Encoder.__mro__[:-1])):
        parts += [
            (names, name, each)
            for name, each in list(names.items())
            if type(each) is type(_make_text) and name != "answer_now"  # Nobody looks it up here.
        ]
    parts += [
        (globals(), name, globals()[name]) for name in ("_dumps", "_names", "_limit", "_set_limit", "islice", "Encoder")
    ]
    dumps, error = _dumps, _error

    def text(report: Dict[str, Any]) -> str:
        if not all(names.get(name) is each for names, name, each in parts):
            report = error("the code changes what tests it")
        found = dumps(report)
        if len(found) > budget["text"]:
            why = "it has more than %d characters as data" % budget["text"]
            found = dumps({"value": {"$opaque": {"type": "value", "why": why}}})
        return found

    return text


_texts.append(_make_text())

"""Runs jobs in order in a new process, in which the program is a module, and says what the program leaves behind.

`plain` starts such processes.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import atexit
import gc
import os
import sys
import time

from .calls import answering_now, budget, depth, drive, error_report, make_text, report_of, space, texts
from .steps import undo
from .values import Encoder, keep_libraries

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Collection, Dict, Generator, Iterator, List, Optional, Set, Tuple

    from .calls import Request

    _Named = Tuple[Any, str, Any]  # A namespace, a name in it, and what it stands for.
    _Returned = List[Tuple[Set[str], List[Any]]]  # The answers of each job, and what it has returned.
    _Run = Callable[[Dict[str, Any]], Generator[Request, Any, str]]

__all__ = ["drive", "scatter", "serve"]

_SECONDS_AGAIN = 0.02
_SECONDS_OF_ROUNDS = 0.05  # Of the processor: on a busy machine, code is not called less often.
_MOST_SECONDS_OF_ROUNDS = 0.5  # Of a clock: code may wait, or be a process.
_filling: List[List[Any]] = []  # Keeps objects of `scatter`.


def serve(
    jobs: List[Dict[str, Any]],
    longest: int,
    writer: int,
    folder: str,
    name: str,
    linger: float,
    by_name: int,
    rounds: int,
) -> Generator[Request, Any, None]:
    """Import the program as a module from a folder, ask for the calls of jobs, and write a line for each.

    Each job has a folder of its own. Then there is a line for each other answer of a job: its number and the answer. It
    may come from a later run, or the value has changed since it was returned. Another line, `left ...`, says what the
    program has left behind. When Python exits, one more line is written: the program has not ended the process.

    After the jobs it waits `linger` seconds, since the program could end the process later. It runs the jobs `rounds`
    times, slow ones at most twice, and the second time each of them twice in a row. The arguments are as `by_name` says
    (see `space`), where possible.
    """
    write, text_of, answer_of, around = os.write, texts[0], answering_now, depth() - 1
    now, worked = time.monotonic, time.process_time
    atexit.register(write, writer, b"end\n")  # What is registered first runs last.
    budget.update(text=longest)
    space.update(program=name, by_name=by_name)
    hazards: List[str] = []
    before, hooks = _import(folder, name, hazards)
    returned: _Returned = []
    places = map(str, range((rounds + 3) * len(jobs)))

    def tell(line: str) -> None:
        found = memoryview(line.encode() + b"\n")
        while found:
            found = found[write(writer, found) :]

    def return_to(here: str) -> None:
        try:
            moved = not os.path.samefile(".", here)
        except OSError:
            moved = True
        if moved:
            hazards.append("another current folder")
        os.chdir(folder)

    def run(job: Dict[str, Any], kept: Optional[List[Any]] = None) -> Generator[Request, Any, str]:
        here = os.path.join(folder, next(places))
        os.mkdir(here)
        os.chdir(here)
        os.environ["TMPDIR"] = here
        environment, given = dict(os.environ), sys.stdin
        text = yield from answer_of(job, kept, around)
        undo(job, environment, given)
        return_to(here)
        return text

    def tell_other(number: int, text: str) -> None:
        known = returned[number][0]
        if text not in known:
            known.add(text)
            tell("%d %s" % (number, text))

    return_to(folder)
    begin = now()
    for job in jobs:
        kept: List[Any] = []
        text = yield from run(job, kept)
        tell(text)
        returned.append(({text}, kept))
    fast = now() - begin < _SECONDS_AGAIN
    time.sleep(linger)
    for number, (known, kept) in enumerate(returned):
        value, after = kept[0][:2] if kept else (None, None)
        if kept and text_of(report_of(value, after, Encoder(judged=jobs[number].get("judged", "")))) not in known:
            tell_other(number, text_of(error_report("the returned value changes later")))
    end, enough = now() + _MOST_SECONDS_OF_ROUNDS, worked() + _SECONDS_OF_ROUNDS
    for count in range(rounds - 1):
        for number, job in enumerate(jobs):
            for _ in range(1 if count else 2):  # What toggles shows in a second call after the first.
                tell_other(number, (yield from run(job)))
        if worked() > enough or now() > end:
            break
    left = getattr(vars(sys.modules[name]).get("coderoom_program"), "left", "")  # By the process of a compiled one.
    hazards.insert(0, left or _left(before, hooks))
    hazards += yield from _of_results(jobs, returned, run, fast or rounds > 1)
    found = [each for each in hazards if each]
    if found:
        tell("left " + found[0])


def _import(folder: str, name: str, hazards: List[str]) -> Tuple[List[_Named], Dict[str, Tuple[Any, Any]]]:
    """Import the program; return what there was before it. New audit hooks are hazards."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    for each in [each for each in sys.modules if each.startswith(__package__)]:
        del sys.modules[each]  # The program must not see where it runs.
    with open(name + ".py", encoding="utf-8", errors="surrogatepass") as file:
        source = file.read()
    keep_libraries(source)
    before = _of_libraries(source), _hooks()
    sys.addaudithook(lambda event, _: hazards.append("an audit hook") if event == "sys.addaudithook" else None)
    __import__(name)
    return before


def _of_results(
    jobs: List[Dict[str, Any]], returned: _Returned, run: _Run, again: bool
) -> Generator[Request, Any, List[str]]:
    """How the results of jobs depend on each other; some of the jobs run `again` for that."""
    found = []
    for job, (known, kept) in zip(jobs, returned):  # noqa: B905 (Python 3.8)
        value, _, arguments = kept[0] if kept else (None, None, None)
        given = {id(each): each for each, _ in _containers(arguments)}
        found += [
            "a result with one %s in several places" % type(each).__name__
            for each, is_second in _containers(value, given)
            if is_second and type(each) is not tuple
        ]
        if again and type(value) in (list, dict, set) and value and (yield from run(job)) in known:  # It is not random.
            value.clear()  # As a caller may.
            if (yield from run(job)) not in known:
                found.append("a result that callers share: who changes it changes what others get")
    return found


def _containers(value: Any, without: Collection[int] = ()) -> Iterator[Tuple[Any, bool]]:
    """The lists, dicts and tuples in a value, and whether each occurs again; none with ids that are left out."""
    left, seen = [value], set()
    while left:  # Without recursion, since it may be nested deeply.
        each = left.pop()
        if type(each) in (list, dict, tuple) and id(each) not in without:
            yield each, id(each) in seen
            left += () if id(each) in seen else each.values() if type(each) is dict else each
            seen.add(id(each))


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
    streams: List[_Named] = [(vars(sys), name, vars(sys)[name]) for name in ("stdout", "stderr")]
    # Steps of a test set `input`; programs set hooks.
    return modules + streams + [(names, name, each) for names in spaces for name, each in names.items()
                      if callable(each) and name != "input" and not name.endswith("hook")]  # fmt: skip


def _hooks() -> Dict[str, Tuple[Any, Any]]:
    """What may change how other code runs, by names; the ids of objects with the objects, so that ids stay theirs."""
    threading, warnings = sys.modules.get("threading"), sys.modules.get("warnings")
    decimal: Any = sys.modules.get("decimal")
    tracing: List[Any] = [sys.gettrace(), sys.getprofile()]
    tracing += [getattr(threading, name, None) for name in ("_trace_hook", "_profile_hook")]
    objects: Dict[str, List[Any]] = {
        "a function that traces calls": tracing,
        "another import hook": [*sys.meta_path, 0, *sys.path_hooks],
        "another function that collecting garbage calls": [*gc.callbacks],
        # Others only hide warnings, and libraries set some.
        "a filter that makes errors of warnings": [
            each for each in getattr(warnings, "filters", ()) if "error" in each
        ],
    }
    found: Dict[str, Tuple[Any, Any]] = {name: ([*map(id, each)], each) for name, each in objects.items()}
    if decimal is not None:  # Without its flags, which every calculation sets.
        numbers, _, others = str(decimal.getcontext()).partition("flags=")
        found["another decimal context"] = numbers + others.partition("traps=")[2], None
    return found


def _left(before: List[_Named], hooks: Dict[str, Tuple[Any, Any]]) -> str:
    """What a program has left behind that can change or end the process later; empty if nothing."""
    if any(_signal.getitimer(which)[0] for which in (0, 1, 2)):
        return "a timer"
    if _thread._count() > 0:
        return "a thread"
    changed = [name for names, name, each in before if names.get(name) is not each]
    if changed:
        return "another %s instead of the one of Python" % changed[0]
    try:
        changed = [name for name, (each, _) in _hooks().items() if name in hooks and each != hooks[name][0]]
    except Exception:
        return "hooks that cannot be read"
    if changed:
        return changed[0]
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


texts[:] = [make_text(globals())]

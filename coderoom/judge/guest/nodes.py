"""Runs JavaScript functions: each call in its own Node process, and all calls in order in one process."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .batches import end_child, in_turn, remember, tidy
from .calls import answer_now, budget

_OLDEST = 18
_MOST_PRINTED = 10_000
_MOST_COMPLAINED = 20_000
_CHUNK = 65_536
_SECONDS_TO_TRY = 20.0
_NO_LIMIT = 1e6  # Seconds; the host ends what takes too long.
# If each process so far took fewer seconds of the processor, the next one runs all jobs in many rounds: on a busy
# machine, code is not called less often. It may take more of a clock, since code may wait, but not many more.
_FAST, _FAST_BY_CLOCK = 0.5, 5.0
_MOST_ROUNDS, _SECONDS_OF_ROUNDS = 60, 10.0  # The seconds are of a clock.
_ZONES = ("UTC", "Asia/Kathmandu", "America/St_Johns")  # Of processes that run all jobs, for other users, too.
_HOOK = "export async function coderoom$(inputs) { return { value: await eval(arguments[1]), inputs }; }"


class Part(NamedTuple):
    """The code of a function: its name in traces, its source, and its imports."""

    cell: str
    body: str
    imports: List[str]


class Done(NamedTuple):
    """The result of a Node process: its complete answers, its output, its duration and its memory.

    A plain process adds one answer for each job, an error if its value changed later and else an empty one, and a last
    one with what the program left behind.
    """

    answers: List[str]
    printed: str
    complained: str
    seconds: float
    peak: int
    worked: float  # The seconds of the processor.
    told: List[float]  # When each answer came.

    @property
    def answer(self) -> Optional[str]:
        """The only answer; `None` if there is none."""
        return self.answers[0] if self.answers else None


_helpers: Dict[str, str] = {}  # The files beside the program by name; the host adds them to this module.
_flags: List[str] = []
_parts: List[Part] = []
_parameters: Dict[str, Any] = {}
_cells = [1]


def load() -> Optional[str]:
    """Check that Node runs here; return why it does not."""
    remember()
    try:
        version = subprocess.run(["node", "--version"], stdout=subprocess.PIPE, env=_environment()).stdout.decode()
    except OSError:
        return "it has no node; install it with apt-get install nodejs"
    if int(version.lstrip("v").split(".")[0] or 0) < _OLDEST:
        return "its node is %s, but must be %d or later" % (version.strip(), _OLDEST)
    addresses, memory = resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_DATA)[0]
    room = _room(addresses)
    if room is None or (memory != resource.RLIM_INFINITY and room < memory // 2):
        # V8 reserves much address space for machine code, which it does not need without a compiler.
        _flags[:] = ["--jitless", "--no-expose-wasm"]
        room = _room(addresses)
    if room is None:
        return "its node cannot be started within its limits"
    if memory != resource.RLIM_INFINITY:
        _flags.append("--max-old-space-size=%d" % max(min(memory, room) * 3 // 4 >> 20, 16))
    return None


def _room(addresses: int) -> Optional[int]:
    """The address space that is left once Node has started; `None` if it does not start."""
    answer = _start([{}], [], _SECONDS_TO_TRY).answer
    if answer is None:
        return None
    return sys.maxsize if addresses == resource.RLIM_INFINITY else max(addresses - int(json.loads(answer)["value"]), 0)


def define(function: str, body: str, imports: List[str], parameters: Any) -> Optional[str]:
    """Load the code of a function, without imports and exports; if that works, it becomes part of the program.

    `parameters` has their names, and whether each is a rest parameter; `None`: unknown. Returns an answer with an
    error, or `None`.
    """
    _cells[0] += 1
    part = Part("<cell %d>" % _cells[0], body, imports)
    wrong = _parsed([part]) or _loaded([*_parts, part])
    tidy()
    if wrong is not None:
        return wrong
    _parts.append(part)
    _parameters[function] = parameters
    return None


def alone(job: Dict[str, Any]) -> str:
    """Run a job in a new process, if the state is clean; `MemoryError` if the process exceeded its memory limit."""
    if not tidy():
        return "untidy"
    if "property" in job:
        return answer_now(job)
    done = _start([job], _parts, show=True)
    if done.answer is None and ("heap out of memory" in done.complained or "process out of memory" in done.complained):
        raise MemoryError
    return done.answer or ""


def run(jobs: List[Dict[str, Any]], each: float, whole: float, largest: int, room: int, _: bool) -> List[Any]:
    """Run jobs like `batches.run`, each in a process of its own."""
    return in_turn(jobs, lambda job, *_: [_done(job, each, largest)], whole, largest, room) if tidy() else []


def run_in_order(
    program: List[List[Any]],
    jobs: List[Dict[str, Any]],
    count: int,
    seconds: float,
    longest: int,
    again: bool,
) -> List[List[Optional[str]]]:
    """Run jobs in order like `plain.run_in_order`; `program` has the arguments of `define` for each function."""
    parts = [Part("", body, imports) for _, body, imports, _ in program]
    _parameters.update((function, parameters) for function, _, _, parameters in program)
    found: List[List[Optional[str]]] = [[] for _ in jobs]
    numbers = [*range(len(jobs))]
    order, most, fast = numbers * (1 + again), 1, again
    for number in range(max(count, 1 + again)):  # The second one has more rounds.
        tidy()
        for _ in range(number % 2):  # Otherwise, all processes might have an even number, or all an odd one.
            subprocess.run(["true"])
        zone = _ZONES[number % len(_ZONES)]
        done = _start(jobs, parts, seconds, order=order, zone=zone)
        size = sum(map(len, done.answers))
        answers: List[Optional[str]] = [*done.answers[: len(order)]] if size <= longest else []
        answers += [None] * (len(order) - len(answers))
        answers += done.answers[len(order) : len(order) + len(jobs)]
        for place, answer in zip([*order, *numbers], answers):  # noqa: B905 (Python 3.8)
            if answer != "" and answer not in found[place]:
                found[place].append(answer)
        left = _left(done.answers[len(order) + len(jobs) :]) if len(done.answers) >= len(order) else ""
        if left.startswith('{"left":') and left not in found[-1]:
            found[-1].append(left)
        fast = fast and done.worked < _FAST and done.seconds < _FAST_BY_CLOCK and len(done.told) >= len(order)
        if not number and fast:
            of_round = done.told[len(order) - 1] - done.told[len(jobs) - 1]
            most = min(_MOST_ROUNDS, longest // (size + 1), int(_SECONDS_OF_ROUNDS / max(of_round, 1e-3)))
        order = numbers * max(1 + again, most if fast else 0)
        if not number and most > 2:
            order += sorted(numbers * 2)  # Each twice in a row, too.
    return found


def _left(told: List[str]) -> str:
    """What a process that gave all its answers has left behind, as `{"left": ...}`; `told` is what it says of that."""
    try:
        os.waitpid(-1, os.WNOHANG)
        return '{"left":"a process"}'
    except ChildProcessError:
        return told[0] if told else '{"left":"what ends or blocks its process"}'


def _done(job: Dict[str, Any], seconds: float, largest: int) -> Optional[List[Any]]:
    if "property" in job:
        return [answer_now(job), "", 0.0, 0, 0.0]
    done = _start([job], _parts, seconds)
    if done.answer is None or len(done.answer) > largest:
        return None
    return [done.answer, done.printed, done.seconds, done.peak, done.worked]


def _program(parts: List[Part]) -> Tuple[str, List[Tuple[str, int, int]]]:
    """The source of the module, and the first and last line of each part."""
    lines: List[str] = []
    places: List[Tuple[str, int, int]] = []
    imports: Dict[str, None] = {}
    for part in parts:
        first = len(lines) + 1
        lines += part.body.split("\n")
        places.append((part.cell, first, len(lines)))
        lines.append(";")  # A bracket would continue the previous statement.
        imports.update(dict.fromkeys(part.imports))
    return "\n".join([*lines, *imports, _HOOK, ""]), places


def _parsed(parts: List[Part]) -> Optional[str]:
    """The syntax error of the code."""
    text, places = _program(parts)
    folder = _write({"program.mjs": text})
    try:
        command = ["node", *_flags, "--check", os.path.join(folder, "program.mjs")]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              env=_environment())  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not done.returncode:
        return None
    said = done.stderr[:_MOST_COMPLAINED].decode("utf-8", "replace").splitlines()
    number = said[0].rpartition(":")[2] if said else ""
    line = int(number) if number.isdigit() else 0
    message = next((each for each in said if "Error: " in each), "SyntaxError: it is not valid JavaScript")
    kind, _, message = message.partition(": ")
    trace = [[cell, line - first + 1, "<module>"] for cell, first, last in places if first <= line <= last]
    return json.dumps({"error": {"types": [], "base": kind, "message": message, "trace": trace}})


def _loaded(parts: List[Part]) -> Optional[str]:
    """The error when the code is loaded."""
    done = _start([{}], parts)
    if done.answer is None:
        what = "the code ended its own process while it was loaded"
        return json.dumps({"error": {"types": [], "base": "Exit", "message": what, "trace": []}})
    answer = json.loads(done.answer)
    if "error" not in answer:
        return None
    # For conflicts between parts, only the parser knows the line.
    return (_parsed(parts) if answer["error"].get("base") == "SyntaxError" else None) or done.answer


def _start(
    jobs: List[Dict[str, Any]],
    parts: List[Part],
    seconds: float = _NO_LIMIT,
    show: bool = False,
    order: Sequence[int] = (),
    zone: str = "UTC",
) -> Done:
    """Run a job in a process of its own, and end that process and its children.

    With an `order` of the numbers of jobs, it runs them and looks like a user's test file. `seconds` is for each job.
    What they print is printed if `show`.
    """
    program, places = _program(parts)
    reader, writer = os.pipe()
    known = [{**job, "parameters": _parameters.get(job.get("function", ""))} for job in jobs]
    plain = bool(order)
    request = {"jobs": known, "order": order or [0], "answer": writer, "longest": budget["text"], "parts": places,
               "plain": plain}  # fmt: skip
    main = "program.test.mjs" if plain else "harness.mjs"
    # Written each time: an earlier job may have changed them.
    files = {**_helpers, main: _helpers["harness.mjs"], "program.mjs": program, "job.json": json.dumps(request)}
    folder = _write(files)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    command = ["node", *_flags, os.path.join(folder, main)]
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        pass_fds=[writer],
        start_new_session=True,
        env=_environment(zone),
        **pipes,  # type: ignore[call-overload]
    )
    os.close(writer)
    said: List[bytes] = [b"", b"", b""]
    took = 0.0
    told: List[float] = []
    count = len(order) + len(jobs) + 1 if plain else 1
    try:
        _read([reader, process.stdout.fileno(), process.stderr.fileno()], said, count, seconds, told)
        took = time.monotonic() - start
    finally:
        process.returncode = 0  # It is reaped here.
        peak, worked = end_child(process.pid, os.killpg)
        for each in (process.stdout, process.stderr):
            each.close()
        os.close(reader)
        shutil.rmtree(folder, ignore_errors=True)
        printed = said[1].decode("utf-8", "replace")[:_MOST_PRINTED]
        if show:
            sys.stdout.write(printed)
    answers = said[0].decode("utf-8", "replace").split("\0")[:-1][:count]
    return Done(answers, printed, said[2].decode("utf-8", "replace"), took, peak, worked, told)


def _read(readers: List[int], said: List[bytes], count: int, seconds: float, told: List[float]) -> None:
    """Read until all answers are there or the next one is late; keep the beginning of the printed text.

    `told` gets the time of each answer.
    """
    rooms = [4 * budget["text"] + 10, 4 * _MOST_PRINTED, _MOST_COMPLAINED]
    poll = select.poll()
    for each in readers:
        poll.register(each, select.POLLIN)
    late = time.monotonic() + seconds
    is_done = False
    while True:
        ready = poll.poll(0 if is_done else max(late - time.monotonic(), 0) * 1000)
        if not ready or time.monotonic() > late:
            return
        for fd, _ in ready:
            index = readers.index(fd)
            part = os.read(fd, _CHUNK)
            if not part:
                poll.unregister(fd)
            said[index] += part[: max(rooms[index] - len(said[index]), 0)]
            if not index:
                told += [time.monotonic()] * part.count(b"\0")
                late = time.monotonic() + seconds if b"\0" in part else late
                is_done = not part or len(said[0]) >= rooms[0] or len(told) >= count


def _write(files: Dict[str, str]) -> str:
    folder = tempfile.mkdtemp(prefix="program-")
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
    return folder


def _environment(zone: str = "UTC") -> Dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
    if zone != "UTC":
        kept["USER"] = "ada"
    # One arena to save address space.
    return {**kept, "TZ": zone, "MALLOC_ARENA_MAX": "1"}

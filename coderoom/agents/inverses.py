"""Undoing calls of functions of the host by their inverses. Used by the runners of agents, and by `chat`."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from reprlib import Repr
from typing import Any, Final, NamedTuple

from coderoom._util.text import MASK
from coderoom.approval.base import call_in_thread
from coderoom.approval.calls import arguments_by_name, checked_data
from coderoom.models.services import in_words
from coderoom.outcome import Outcome
from coderoom.sandbox import FunctionCall, HostFunction, Limits, RecordedCall
from coderoom.steps import CALLS_TO_UNDO, INVERSE, INVERSE_BEGUN, find_now, keep_step, note, once

_UNKNOWN: Final = "it had begun when the run was ended, and whether it was done is not known"
_SECONDS: Final = Limits().call_seconds
_MOST_LINES: Final = 20
_MOST_ARGUMENTS: Final = 8
_SHORT: Final = Repr()
_numbers = count()

Functions = Mapping[str, HostFunction]
"""The functions of an agent by their names, as they undo calls; empty if none undoes another one."""


async def no_functions() -> Functions:
    """The functions of an agent whose calls nothing undoes."""
    return {}


class Made(NamedTuple):
    """Calls that some code has made.

    Attributes:
        number: Its place among all that code of this process has made.
        calls: Those that may have changed something.
        records: What is recorded of those that can be undone.
    """

    number: int
    calls: tuple[FunctionCall, ...]
    records: tuple[RecordedCall, ...] = ()

    @classmethod
    def now(cls, calls: Sequence[FunctionCall], records: Sequence[RecordedCall] = ()) -> Made:
        """What code has made just now."""
        changing = tuple(call for call in calls if call.has_effect)
        return cls(next(_numbers), changing, tuple(record for record in records if record.inverse))


class Undone(NamedTuple):
    """What became of calls that were to be undone.

    Attributes:
        left: Those that are not undone.
        words: What was called to undo the others, and why some are not, a line each.
    """

    left: tuple[FunctionCall, ...] = ()
    words: tuple[str, ...] = ()


async def undo(made: Sequence[Made], functions: Functions) -> Undone:
    """Undo the calls that code of an agent has made, the last one first.

    The person is told of those that are not, if there are inverses at all.
    """
    undone = await _undo([(0, each) for each in made], [functions], {})
    told = {record.id for each in made for record in each.records}
    left = [each for each in undone.left if each.id not in told and each.name in functions]
    for line in _counted([f"{_called(each.name, each.arguments)} was not undone: {_why_left(each)}." for each in left]):
        note(line)
    return undone


def _why_left(call: FunctionCall) -> str:
    return "it has no inverse" if call.error is None else f"it had failed ({call.error})"


async def undo_since(agents: Sequence[Any], ran: Sequence[Any] | None) -> Undone:
    """Undo the calls that code of all agents of a team has made, the last one first.

    Args:
        agents: The coding agents of the team.
        ran: What each of them had `ran` before that; `None`: what was being undone when the run was ended.
    """
    offered = [await agent._runner.functions() for agent in agents]
    made: list[tuple[int, Made]] = []
    for place, (agent, before) in enumerate(zip(agents, ran or (), strict=False)):
        past = before[0] if isinstance(before, tuple) else before  # That of its runner.
        made += [(place, each) for each in agent._runner.past.take_made(len(past.made))]
    made.sort(key=lambda each: each[1].number)
    lost = "The run was ended when a task had just been undone: its calls of functions are not." if ran is None else ""
    return await _undo(made, offered, {"of": "all agents"}, lost)


async def _undo(
    made: Sequence[tuple[int, Made]], offered: Sequence[Functions], request: Mapping[str, str], lost: str = ""
) -> Undone:
    """Call the inverses of calls in reverse order, each once, also if the run is ended and resumed meanwhile.

    Nobody is asked about them: whoever has allowed a call has allowed that it is undone.

    Args:
        made: The calls, each with the place of its functions in `offered`.
        offered: The functions.
        request: What identifies the step that has what is recorded of the calls: a resumed run has that without code.
        lost: What to tell if there should be such a step, and is none.
    """
    calls = [call for _, each in made for call in each.calls]
    if not any(offered):
        return Undone(tuple(calls))

    async def take() -> list[tuple[int, RecordedCall]]:
        if lost:
            note(lost)
        return [(place, record) for place, each in made for record in each.records if record.id not in gone]

    gone = _undone_by_code(made, offered)
    lines: list[str] = []
    undone = set(gone)
    records = await once(CALLS_TO_UNDO, request, take, _dump, _load)
    for place, record in reversed(records):
        name, arguments = json.loads(record.inverse)
        step = {"call": record.name, "id": record.id, "inverse": name}
        work = partial(_call, offered[place], name, arguments, record, step)
        if problem := await once(INVERSE, step, work, str, str):
            line = f"{_called(record.name, arguments)} was not undone: {problem}."
            if line not in lines:
                note(line)
            lines.append(line)
        else:
            lines.append(f"{_called(record.name, arguments)} was undone by {name}().")
            undone.add(record.id)
    return Undone(tuple(call for call in calls if call.id not in undone), _counted(lines))


def _chosen(functions: Functions, name: str, arguments: Mapping[str, Any], record: RecordedCall) -> dict[str, Any]:
    """The arguments of an inverse: those of the call that it has parameters for, and what that has returned."""
    parameters = functions[name].signature.parameters
    # Arguments that are no parameters of the call's function: code cannot set the inverse's with them.
    extra = arguments.keys() - functions[record.name].signature.parameters.keys()
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return {
        key: value
        for key, value in {**arguments, "result": json.loads(record.value)}.items()
        if (key == "result" or key not in extra if key in parameters else takes_all and key != "result")
    }


def _undone_by_code(made: Sequence[tuple[int, Made]], offered: Sequence[Functions]) -> set[str]:
    """The ids of calls that the code itself has undone, and of the calls of inverses by which it has."""
    calls = [call for _, each in made for call in each.calls]
    places = {call.id: number for number, call in enumerate(calls)}
    found: set[str] = set()
    for place, record in reversed([(place, record) for place, each in made for record in each.records]):
        name, arguments = json.loads(record.inverse)
        for call in calls[places.get(record.id, len(calls)) + 1 :]:
            if call.name != name or call.outcome is not Outcome.OK or call.id in found:
                continue
            with suppress(Exception):  # A check can be any code.
                wanted = _as_checked(offered[place][name], _chosen(offered[place], name, arguments, record))
                given = _as_checked(offered[place][name], call.arguments)
                if "result" not in call.arguments:  # Code may well leave it out.
                    wanted.pop("result", None)
                    given.pop("result", None)
                if wanted == given:
                    found |= {record.id, call.id}
                    break
    return found


def _as_checked(function: HostFunction, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return arguments_by_name(function.signature, checked_data(function, ([], dict(arguments))))


def _called(name: str, arguments: Mapping[str, Any]) -> str:
    """A call with what tells it from others, in a few words."""
    shown = [f"{key}={_SHORT.repr(value)}" for key, value in arguments.items()]
    return f"{name}({', '.join([*shown[:_MOST_ARGUMENTS], *(['...'] if shown[_MOST_ARGUMENTS:] else [])])})"


def _counted(lines: Sequence[str]) -> tuple[str, ...]:
    """Each line once, with how often it is there, and not too many."""
    found = Counter(lines)
    shown = [line if times == 1 else f"{line.rstrip('.')} ({times:,} times)." for line, times in found.items()]
    return (
        *shown[:_MOST_LINES],
        *([f"And {len(shown) - _MOST_LINES:,} more lines."] if len(shown) > _MOST_LINES else []),
    )


def _dump(records: list[tuple[int, RecordedCall]]) -> list[Any]:
    return [[place, record.model_dump()] for place, record in records]


def _load(found: Any) -> list[tuple[int, RecordedCall]]:
    return [(place, RecordedCall.model_validate(each)) for place, each in found]


async def _call(
    functions: Functions, name: str, arguments: Mapping[str, Any], record: RecordedCall, step: Mapping[str, Any]
) -> str:
    """Call an inverse; return why it was not done, and nothing if it was."""
    begun = {**step, "begins": True}
    if find_now(INVERSE_BEGUN, begun) is not None:
        return f"{name}() may have undone it: {_UNKNOWN}"
    if name not in functions:
        return f"{name}() is not there any more"
    if MASK in record.inverse or MASK in record.value:
        return f"the journal does not have the keys that were in it for {name}()"
    function, chosen = functions[name], _chosen(functions, name, arguments, record)
    if "result" in chosen and not record.kept:
        return f"what it has returned is too long to be kept for {name}()"
    try:
        ready = function.check((), chosen)
        keep_step(INVERSE_BEGUN, begun, {"begun": True}, 0.0)
        async with asyncio.timeout(_SECONDS):
            answer = await call_in_thread(function.run, ready) if function.in_thread else function.run(ready)
            if inspect.isawaitable(answer):
                await answer
    except TimeoutError as error:
        late = f"{name}() took more than {_SECONDS:g} s, and whether it was done is not known"
        return in_words(f"{name}()", error).rstrip(".") if str(error) else late
    except (Exception, asyncio.CancelledError) as error:  # Nobody else cancels it.
        return in_words(f"{name}()", error).rstrip(".")
    return ""

"""Undoing calls of functions of the host by their inverses. Used by the sessions of `CodeActAgent`s."""

from __future__ import annotations

import inspect
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final, NamedTuple

from coderoom.approval.base import call_in_thread
from coderoom.models.services import in_words
from coderoom.outcome import Outcome
from coderoom.sandbox import FunctionCall, HostFunction, RecordedCall
from coderoom.steps import CALLS_TO_UNDO, INVERSE, INVERSE_BEGUN, find_now, keep_step, note, once

_UNKNOWN: Final = "it had begun when the run was ended, and whether it was done is not known"


class Undone(NamedTuple):
    """What became of calls that were to be undone.

    Attributes:
        left: Those that are not undone.
        words: What was called to undo the others, and why some are not, a line each.
    """

    left: tuple[FunctionCall, ...]
    words: tuple[str, ...]


def all_undone(parts: Sequence[Undone]) -> Undone:
    """What became of the calls of several."""
    return Undone(
        tuple(call for each in parts for call in each.left), tuple(line for each in parts for line in each.words)
    )


def take_once(take: Callable[[], list[RecordedCall]]) -> Awaitable[list[RecordedCall]]:
    """The records of calls that are to be undone, as a step: a resumed run has them without the code."""

    async def found() -> list[RecordedCall]:
        return take()

    return once(CALLS_TO_UNDO, {}, found, _dump, _load)


def _dump(records: list[RecordedCall]) -> list[Any]:
    return [record.model_dump() for record in records]


def _load(found: Any) -> list[RecordedCall]:
    return [RecordedCall.model_validate(each) for each in found]


async def undo_calls(
    calls: Sequence[FunctionCall], records: Sequence[RecordedCall], functions: Mapping[str, HostFunction]
) -> Undone:
    """Call the inverses of calls in reverse order, each once, also if the run is ended and resumed meanwhile.

    Nobody is asked about them: whoever has allowed a call has allowed that it is undone.

    Args:
        calls: All calls.
        records: What is recorded of them.
        functions: The functions by their names, as they are without anybody who decides about calls.
    """
    words: list[str] = []
    undone: dict[str, set[int]] = defaultdict(set)
    places: dict[str, int] = defaultdict(int)
    numbered = []
    for record in records:
        if record.error is None:
            numbered.append((places[record.name], record))
            places[record.name] += 1
    for place, record in reversed(numbered):
        if not record.inverse:
            continue
        name, arguments = json.loads(record.inverse)
        function = functions[name]
        request = {"call": record.name, "arguments": record.digest, "place": place, "inverse": name}
        extra = arguments.keys() - functions[record.name].signature.parameters.keys()
        problem = await once(INVERSE, request, partial(_call, function, arguments, extra, record, request), str, str)
        if problem:
            words.append(f"{record.name}(...) was not undone: {problem}.")
            note(words[-1])
        else:
            words.append(f"{record.name}(...) was undone by {name}().")
            undone[record.name].add(place)
    left, seen = [], defaultdict[str, int](int)
    for call in calls:
        if call.outcome is not Outcome.OK:
            left.append(call)
            continue
        if seen[call.name] not in undone[call.name]:
            left.append(call)
        seen[call.name] += 1
    return Undone(tuple(left), tuple(words))


async def _call(
    function: HostFunction,
    arguments: Mapping[str, Any],
    extra: Set[str],
    record: RecordedCall,
    request: Mapping[str, Any],
) -> str:
    """Call an inverse; return why it was not done, and nothing if it was.

    `extra` names arguments that are no parameters of the call's function: code cannot set the inverse's with them.
    """
    begun = {**request, "begins": True}
    if find_now(INVERSE_BEGUN, begun) is not None:
        return f"{function.name}() may have undone it: {_UNKNOWN}"
    parameters = function.signature.parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    known = {**arguments, "result": json.loads(record.value)}
    chosen = {
        name: value
        for name, value in known.items()
        if (name == "result" or name not in extra if name in parameters else takes_all and name != "result")
    }
    if "result" in chosen and not record.kept:
        return f"what it has returned is too long to be kept for {function.name}()"
    try:
        ready = function.check((), chosen)
        keep_step(INVERSE_BEGUN, begun, {"begun": True}, 0.0)
        answer = await call_in_thread(function.run, ready) if function.in_thread else function.run(ready)
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:
        return in_words(f"{function.name}()", error).rstrip(".")
    return ""

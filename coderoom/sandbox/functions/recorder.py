"""Recording the answers of host functions, so that cells can be replayed without calling them."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from coderoom.sandbox.functions.calls import call_id, log_edited
from coderoom.sandbox.functions.function import (
    Arguments,
    DescribedError,
    HostFunction,
    NotAllowedError,
    NotBegun,
    as_data,
    error_data,
)
from coderoom.steps import branch, cell, find_now, keep_step, runs_again

_LONGEST = 100_000


class RecordedCall(BaseModel):
    """A call and its answer, as JSON-like data.

    Attributes:
        name: The function's name.
        digest: A digest of the arguments.
        value: What it returned, as JSON text that may have `NaN` in it, if `kept` and without an `error`.
        error: What it raised, likewise.
        kept: Whether the answer is recorded; a very long one is not.
        inverse: The function that undoes it, and the arguments by their names, as JSON text; empty if there is none.
        edited: The arguments that it was made with, by their names, as JSON text; empty if it was not edited.
        id: That of the call in the result of its cell.
        made: Whether the function was called, or nobody had allowed it.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    digest: str
    value: str = "null"
    error: str | None = None
    kept: bool = True
    inverse: str = ""
    edited: str = ""
    id: str = ""
    made: bool = True


class CallRecorder:
    """Records the answers of host functions, or answers from a record."""

    def __init__(self) -> None:
        self._calls: defaultdict[str, list[RecordedCall]] = defaultdict(list)  # By the branch that has made them.
        self._answers: dict[tuple[str, str], deque[RecordedCall]] | None = None

    def wrap(self, function: HostFunction) -> HostFunction:
        """The function with its calls recorded or replayed."""

        def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
            return Arguments((digest_of(args, kwargs), function.check(args, kwargs)), {})

        def run(arguments: Arguments) -> Any:
            digest, inner = arguments.args
            if (call := self._find(function, digest)) is not None:
                if call.edited:
                    log_edited(json.loads(call.edited))
                if not call.kept:
                    raise RuntimeError(
                        f"{call.name}() is not called again to restore a session, and its answer was too long to keep"
                    )
                if call.error is not None:
                    told = json.loads(call.error)
                    raise DescribedError(told) if call.made else NotAllowedError(*told["args"])
                return json.loads(call.value)
            calls = self._calls[
                branch.get()
            ]  # A thread may outlive its cell: its answer must not count for a later one.
            try:
                value = function.run(inner)
                if inspect.isawaitable(value):
                    return _keep_later(calls, function, digest, value, inner)
                return _keep(calls, function, digest, value, inner)
            except BaseException as error:
                _keep_error(calls, function, digest, error, inner)
                raise

        async def run_async(arguments: Arguments) -> Any:
            answer = run(arguments)
            return await answer if inspect.isawaitable(answer) else answer

        return replace(function, check=check, run=run if function.in_thread else run_async)

    def take(self) -> list[RecordedCall]:
        """The calls of this branch since the last `take`."""
        return self._calls.pop(branch.get(), [])

    def answer_from(self, calls: Sequence[RecordedCall] | None) -> None:
        """Answer from recorded calls from now on; `None`: call the functions."""
        if calls is None:
            self._answers = None
            return
        self._answers = defaultdict(deque)
        for call in calls:
            self._answers[call.name, call.digest].append(call)

    def _find(self, function: HostFunction, digest: str) -> RecordedCall | None:
        """The record of a call that must not be made again."""
        name, refused = function.name, "is not called again to restore a session, and this call was not recorded"
        if self._answers is None:
            found = find_now("call", _request_of(name, digest))
            if found is None:
                if runs_again.get() and not (function.effect is not None and function.effect.name == "read"):
                    raise RuntimeError(f"{name}() {refused}")
                return None
            call = RecordedCall.model_validate(found).model_copy(update={"id": call_id()})
            self._calls[branch.get()].append(call)
            return call
        waiting = self._answers.get((name, digest))
        if not waiting:
            raise RuntimeError(f"{name}() {refused}")
        return waiting.popleft()


def _record(calls: list[RecordedCall], call: RecordedCall) -> None:
    calls.append(call := call.model_copy(update={"id": call_id()}))
    keep_step("call", _request_of(call.name, call.digest), call.model_dump(), 0.0)


def _request_of(name: str, digest: str) -> dict[str, str]:
    return {"name": name, "arguments": digest, "cell": cell.get()}


def _keep(calls: list[RecordedCall], function: HostFunction, digest: str, value: Any, arguments: Arguments) -> Any:
    data = as_data(function.name, value, function.pack)
    text = json.dumps(data)
    kept = len(text) <= _LONGEST
    inverse = "" if function.to_undo is None else json.dumps(function.to_undo(arguments))
    value, edited = text if kept else "null", _edited(function, arguments)
    call = RecordedCall(name=function.name, digest=digest, value=value, kept=kept, inverse=inverse, edited=edited)
    _record(calls, call)
    return data


async def _keep_later(
    calls: list[RecordedCall], function: HostFunction, digest: str, value: Awaitable[Any], arguments: Arguments
) -> Any:
    try:
        return _keep(calls, function, digest, await value, arguments)
    except NotBegun:
        raise
    except BaseException as error:
        task, seen = asyncio.current_task(), error
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            # It ran out of time, which the code saw, or the cell ended, which the code did not see.
            seen = TimeoutError(f"{function.name}() did not answer in time")
        _keep_error(calls, function, digest, seen, arguments)
        raise


def _keep_error(
    calls: list[RecordedCall], function: HostFunction, digest: str, error: BaseException, arguments: Arguments
) -> None:
    told, edited = json.dumps(error_data(error)), _edited(function, arguments)
    made = not isinstance(error, NotAllowedError)
    _record(calls, RecordedCall(name=function.name, digest=digest, error=told, edited=edited, made=made))


def _edited(function: HostFunction, arguments: Arguments) -> str:
    found = None if function.as_edited is None else function.as_edited(arguments)
    return "" if found is None else json.dumps(found)


def digest_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A digest of the arguments of a call, as they came from the code."""
    text = json.dumps([list(args), dict(kwargs)], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]

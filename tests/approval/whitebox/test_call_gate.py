"""Rules for calls see what a function's own binding sees, for random calls of signatures of all kinds."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.tools import BaseTool
from pydantic import BaseModel, Field

from coderoom.approval import CallRule
from coderoom.approval.call_gate import CallGate
from coderoom.executors.autogen_tools import from_tool
from coderoom.sandbox import HostFunction, check_functions

_bound: list[dict[str, Any]] = []


def plain(a: int, b: str = "x", *, c: float = 2.0) -> None:
    _bound.append({"a": a, "b": b, "c": c})


def positional(a: int = 1, b: str = "x", /, **more: Any) -> None:
    _bound.append({"a": a, "b": b, "more": more})


def many(a: int = 1, *rest: int, b: bool = False, **more: Any) -> None:
    _bound.append({"a": a, "rest": rest, "b": b, "more": more})


_FRESH: Any = Field(default_factory=list)


def objects(a: Any = object, b: int = 2, /, c: Path = Path("/tmp"), *, d: list[int] = _FRESH) -> None:
    _bound.append({"b": b, "c": str(c), "d": d})


_FUNCTIONS = [plain, positional, many, objects, functools.partial(plain, c=7.5)]
_NAMED: dict[str, list[Any]] = {
    "a": [1, 5],
    "b": [0, 1, "x", "y"],
    "c": [2.0, 3, "/etc"],
    "d": [[1], []],
    "more": [3],
    "rest": [4],
    "z": [None],
}


async def _is_forbidden(function: HostFunction, rule: dict[str, str], args: list[Any], kwargs: dict[str, Any]) -> bool:
    gate = CallGate("agent", None, [CallRule(function=function.name, arguments=rule, effect="forbidden")])
    guarded = gate.guard(function)
    try:
        await guarded.run(guarded.check(args, kwargs))
    except PermissionError:
        return True
    return False


def _words(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


@pytest.mark.parametrize("offered", _FUNCTIONS, ids=["plain", "positional", "many", "objects", "partial"])
async def test_a_rule_matches_what_a_parameter_is_bound_to(offered: Callable[..., None]) -> None:
    (function,) = check_functions([offered])
    chance, tried = random.Random(7), 0
    while tried < 25:
        args = [chance.choice([1, 5, "x"]) for _ in range(chance.randint(0, 3))]
        kwargs = {name: chance.choice(_NAMED[name]) for name in chance.sample(list(_NAMED), chance.randint(0, 3))}
        _bound.clear()
        try:
            function.run(function.check(args, kwargs))
        except TypeError:
            continue
        tried += 1
        (bound,) = _bound.copy()
        for name, value in bound.items():
            assert await _is_forbidden(function, {name: re.escape(_words(value))}, args, kwargs), (args, kwargs, name)
            assert not await _is_forbidden(function, {name: "something else"}, args, kwargs), (args, kwargs, name)


class _Letter(BaseModel):
    sender: str = Field("me", alias="from")
    to: list[str] = Field(default_factory=lambda: ["Ann"])


class _Send(BaseTool[_Letter, _Letter]):
    def __init__(self) -> None:
        super().__init__(_Letter, _Letter, "send", "Send a letter.")

    async def run(self, args: _Letter, cancellation_token: CancellationToken) -> _Letter:
        return args


@pytest.mark.parametrize(
    ("rule", "kwargs", "is_forbidden"),
    [
        ({"from": "me"}, {}, True),
        ({"from": "me"}, {"from": "you"}, False),
        ({"to": r"\['Ann'\]"}, {"from": "you"}, True),
        ({"to": r"\['Ann'\]"}, {"to": ["Bob"]}, False),
    ],
)
async def test_a_rule_matches_a_tools_fields_by_their_aliases_and_with_their_defaults(
    rule: dict[str, str], kwargs: dict[str, Any], is_forbidden: bool
) -> None:
    assert await _is_forbidden(from_tool(_Send()), rule, [], kwargs) == is_forbidden

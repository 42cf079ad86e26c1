"""Calls as Python to read and to edit."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.approval import CallRequest
from coderoom.approval.calls import Given, arguments_by_name, as_python, checked_data, parse_call
from coderoom.sandbox import host_functions
from coderoom.sandbox.functions.function import HostFunction


async def offered(function: Any) -> HostFunction:
    [found] = await host_functions([function])
    return found


def pay(number: int, to: str = "Ann", *more: str, note: str | None = None) -> None:
    """Pay somebody."""


def send(number: int, /, to: str = "Ann", **more: Any) -> None:
    """Send something."""


@pytest.mark.parametrize(
    ("function", "given", "text"),
    [
        (send, ([5], {"to": "Bob"}), "send(5, to='Bob')"),
        (send, ([5, "Bob"], {"a": 1, "class": 2}), "send(5, to='Bob', a=1, **{'class': 2})"),
        (pay, ([5], {}), "pay(number=5)"),
        (pay, ([5, "a", "b"], {"note": "n"}), "pay(5, 'a', 'b', note='n')"),
        (pay, ([], {"wrong": [1.5, None, float("inf")]}), "pay(wrong=[1.5, None, float('inf')])"),
        (send, ([5], {"to": "p\u0430y"}), r"send(5, to='p\u0430y')"),
    ],
)
async def test_a_call_in_a_line(function: Any, given: Given, text: str) -> None:
    assert as_python(await offered(function), given) == f"```python\n{text}\n```"


async def test_a_long_call_has_lines() -> None:
    shown = as_python(await offered(send), ([5], {"to": "a line\n" * 20, "rows": [["x" * 50] * 2] * 2}))
    assert "send(\n    5,\n    to=('a line\\n'\n     'a line\\n'" in shown
    assert "    rows=[['" in shown
    assert parse_call("send", shown.removeprefix("```python\n").removesuffix("\n```")) == (
        [5],
        {"to": "a line\n" * 20, "rows": [["x" * 50] * 2] * 2},
    )


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("pay(", "It is no single call of pay"),
        ("1; pay(2)", "It is no single call of pay"),
        ("other(1)", "Only the arguments can be changed"),
        ("pay(number)", "the argument 1 must be a literal"),
        ("pay(to=print())", "the argument to must be a literal"),
        ("pay(to=1, **{'to': 2})", "the argument 'to' stands twice"),
        ("pay(**{'': 2})", "the argument '' stands twice, or is not a name"),
        ("pay(**5)", "the argument '' stands twice, or is not a name"),
    ],
)
def test_what_is_no_such_call(code: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_call("pay", code)


async def test_arguments_by_their_names() -> None:
    signature = (await offered(pay)).signature
    assert arguments_by_name(signature, ([5], {})) == {"number": 5, "to": "Ann", "note": None}
    assert arguments_by_name(signature, ([], {"to": "Bob"})) == {"to": "Bob"}
    more = arguments_by_name((await offered(send)).signature, ([5], {"number": 6, "a": 1}))
    assert more == {"number": 5, "to": "Ann", "a": 1}
    assert checked_data(await offered(pay), (["5"], {})) == ([5, "Ann"], {"note": None})


async def test_a_question_about_an_edited_call() -> None:
    request = CallRequest.about(await offered(pay), ([5], {}), agent="payer", branch="b", always=True, context=[])
    assert request.title == "A call of pay() by payer in branch b that waits for approval"
    assert (
        CallRequest.about(await offered(pay), ([5], {}), context=[]).title == "A call of pay() that waits for approval"
    )
    edited = request.edited("```python\npay(6, note='n')\n```")
    assert (edited.arguments["number"], edited.agent, edited.branch, edited.always) == (6, "payer", "b", True)
    assert request.given("pay(7)") == ([7], {})
    with pytest.raises(ValueError, match="number"):
        request.given("pay('many')")

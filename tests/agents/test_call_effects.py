"""The effects of functions, which decide whether somebody is asked: none that is declared is lost."""

from __future__ import annotations

import functools
from typing import Annotated

import pytest
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool, StaticWorkbench, ToolOverride

from coderoom.approval import NeverApprove
from coderoom.errors import RequestError
from coderoom.sandbox import Effect, host_functions
from tests.agents.acting import MakeActor, Multiply, Pair, Product
from tests.agents.helpers import Client

Writes = Annotated[str, Effect("write")]


def test_a_declared_effect_is_never_lost(actor: MakeActor) -> None:
    def text() -> Annotated[str, Effect("write")]:
        """In quotes."""
        return ""

    def unknown() -> Annotated[Nothing, Effect("write")]:  # type: ignore[name-defined] # noqa: F821
        """Of a type that is not there."""

    def misplaced(number: Annotated[int, Effect("write")]) -> None:
        """At a parameter."""

    def named() -> Writes | None:
        """By a name of its own, in a union."""

    for function, message in (
        (text, r"text\(\) need a call_approval"),
        (named, r"named\(\) need a call_approval"),
        (unknown, r"unknown\(\) cannot be read"),
        (misplaced, r"belongs to its result"),
    ):
        with pytest.raises((ValueError, RequestError), match=message):
            actor(Client("Well."), tools=[function])
    with pytest.raises(RequestError, match="an effect is one of 'read', 'write', 'forbidden'"):
        Effect("writes")  # type: ignore[arg-type]


def given(number: int) -> str:
    """Give."""
    return str(number)


class Giver:
    """Functions that write, declared in many ways."""

    __name__ = "giver"

    @Effect("write")
    def __call__(self, number: int) -> str:
        """Give."""
        return str(number)

    @Effect("write")
    @classmethod
    def of_class(cls, number: int) -> str:
        """Give."""
        return str(number)

    @Effect("write")
    @staticmethod
    def of_nothing(number: int) -> str:
        """Give."""
        return str(number)


class Decorated(Multiply):
    @Effect("write")
    async def run(self, args: Pair, cancellation_token: CancellationToken) -> Product:
        return Product(value=1)


class Annotating(Multiply):
    async def run(self, args: Pair, cancellation_token: CancellationToken) -> Annotated[Product, Effect("write")]:
        return Product(value=1)


@Effect("write")
class Whole(Multiply):
    pass


WRITING = {
    "an object": Giver(),
    "a partial": Effect("write")(functools.partial(given)),
    "a class method": Giver.of_class,
    "a static method": Giver.of_nothing,
    "a class of tools": Decorated(),
    "a class of tools by annotation": Annotating(),
    "a decorated class of tools": Whole(),
    "tools of a workbench": StaticWorkbench([Annotating()]),
    "a renamed tool": StaticWorkbench(
        [FunctionTool(Giver.of_class, "Give.", name="give")], tool_overrides={"give": ToolOverride(name="donate")}
    ),
}


@pytest.mark.parametrize("way", WRITING)
async def test_however_it_is_declared_that_a_function_writes_it_is_known(way: str) -> None:
    assert [function.effect for function in await host_functions([WRITING[way]])] == [Effect("write")]


@pytest.mark.parametrize("offered", ["tools", "workbench"])
def test_no_effect_is_lost_in_a_config(actor: MakeActor, offered: str) -> None:
    @Effect("write")
    def pay(number: int) -> str:
        """Pay."""
        return str(number)

    tool = FunctionTool(pay, "Pay.")
    arguments = {"tools": [tool]} if offered == "tools" else {"workbench": StaticWorkbench([tool])}
    with pytest.raises(ValueError, match="its effect 'write' would be lost"):
        actor(Client("Well."), call_approval=NeverApprove(), **arguments).dump_component()

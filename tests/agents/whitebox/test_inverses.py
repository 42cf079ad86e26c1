"""An inverse that never returns: the turn goes on."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import pytest

from coderoom.agents import inverses
from coderoom.approval import AlwaysApprove
from coderoom.sandbox import Effect
from tests.agents.acting import MakeActor, remembered
from tests.agents.helpers import TASK, Client, python, turn


async def test_an_inverse_that_never_returns_is_not_waited_for(
    actor: MakeActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inverses, "_SECONDS", 0.1)

    def put(name: str) -> Annotated[None, Effect("write", inverse="take")]:
        """Put something."""

    def take(name: str) -> None:
        """Take it back."""
        time.sleep(2)

    async def lend(name: str) -> Annotated[None, Effect("write", inverse="get")]:
        """Lend something."""

    async def get(name: str) -> None:
        """Get it back."""
        raise asyncio.CancelledError

    code = "put('a')\nawait lend('b')\n1 / 0"
    tools = [put, take, lend, get]
    agent = actor(Client(python(code), "No."), tools=tools, call_approval=AlwaysApprove(), on_error="rollback")
    await turn(agent, TASK)
    told = "\n".join(await remembered(agent))
    assert "put(name='a') was not undone: take() took more than 0.1 s, and whether it was done is not known." in told
    assert "lend(name='b') was not undone: get() failed: CancelledError." in told

"""AutoGen's cancellation token, which functions may take and code never passes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from coderoom.errors import RequestError

__all__ = ["TOKEN", "Token", "takes_token", "without_token"]

TOKEN = "cancellation_token"
"""The parameter's name, by which AutoGen's `FunctionTool` knows it."""


class Token:
    """Stands for AutoGen's `CancellationToken`: whoever runs a tool cancels its task, and needs no more than this."""

    def is_cancelled(self) -> bool:
        """Whether it was cancelled."""
        return False

    def cancel(self) -> None:
        """Refuse to."""
        raise RequestError("A tool cannot cancel the call that it answers.")

    def add_callback(self, callback: Callable[[], None]) -> None:
        """The task is cancelled instead."""

    def link_future(self, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """The task is cancelled instead, and with it what it awaits."""
        return future


def takes_token(signature: inspect.Signature) -> bool:
    """Whether a function is to be given a token."""
    parameter = signature.parameters.get(TOKEN)
    return parameter is not None and "CancellationToken" in str(parameter.annotation)


def without_token(signature: inspect.Signature) -> inspect.Signature:
    """The signature as code sees it."""
    parameters = [each for name, each in signature.parameters.items() if name != TOKEN]
    return signature.replace(parameters=parameters)

"""A person at the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Final, Self

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import Component

from coderoom._util.components import Seconds, TimedConfig
from coderoom.approval.answers import DEFAULT_PROMPT, TRIES, not_understood, understand
from coderoom.approval.ask import call_in_thread
from coderoom.approval.base import Approval, no
from coderoom.approval.terminal import discard_typed_ahead, input_descriptor, read_line, say, show_code

__all__ = ["HumanApproval"]

_WHO: Final = "A person at the terminal"
_HELP: Final = "Please answer y or n; a reason may follow, as in: n because it deletes files\n"
_POLL_SECONDS: Final = 0.05
_SETTLE_SECONDS: Final = 0.15

# For the whole process and not for each event loop, since all of them share the one terminal.
_terminal = threading.Lock()


class HumanApprovalConfig(TimedConfig):
    """Config of `HumanApproval`."""

    timeout: Seconds | None = 300.0
    prompt: str = DEFAULT_PROMPT


class HumanApproval(Approval, Component[HumanApprovalConfig]):
    """Asks a person at the terminal.

    The code goes to standard error, highlighted if that is a terminal, with control characters and invisible ones
    shown as such. The answer is a line of standard input: `y` or `n`, with a reason if the person likes:
    `n because it deletes files`. Just Enter is a no. What was typed at a terminal before the question stood there is
    dropped. Several agents that ask at the same time get the person one after the other.

    Without an answer the code does not run: no standard input, its end, an answer that is not understood three times
    and the timeout are each a no, with the reason.

    Args:
        timeout: How many seconds the person has, counted from when the code is shown; `None` for no limit.
        prompt: The question.

    Raises:
        ValueError: If the timeout is not above 0.
    """

    component_config_schema = HumanApprovalConfig
    component_provider_override = "coderoom.approval.HumanApproval"

    def __init__(self, timeout: float | None = 300.0, prompt: str = DEFAULT_PROMPT) -> None:
        self._config = HumanApprovalConfig(timeout=timeout, prompt=prompt)

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Show the code and wait for the person's answer."""
        async with _terminal_to_oneself():
            descriptor = input_descriptor()
            if descriptor is None:
                return no("There is no terminal or other standard input to ask a person at.")
            limit = asyncio.timeout(self._config.timeout)
            try:
                async with limit:
                    return await self._ask(descriptor, request.code)
            except (OSError, ValueError) as error:
                if limit.expired():
                    return self._too_late()
                return no(f"The code could not be shown to a person: {type(error).__name__}: {error}")
            except asyncio.CancelledError:
                _say_if_possible("\nThe question is withdrawn.\n")
                raise

    async def _ask(self, descriptor: int, code: str) -> ApprovalResponse:
        # Who shows the conversation on the same terminal is given the time to show what led here.
        await asyncio.sleep(_SETTLE_SECONDS)
        # Highlighting takes its time, and a terminal may be held up.
        await call_in_thread(show_code, code)
        discard_typed_ahead(descriptor)
        for _ in range(TRIES):
            say(f"{self._config.prompt} A reason may follow. [y/N] ")
            line = await read_line(descriptor)
            if line is None:
                return no("The input ended before a person answered.")
            response = understand(line, _WHO)
            if response is not None:
                return response
            say(_HELP)
        return not_understood()

    def _too_late(self) -> ApprovalResponse:
        reason = f"No person answered within {self._config.timeout:g} seconds."
        _say_if_possible(f"\n{reason} The code does not run.\n")
        return no(reason)

    def _to_config(self) -> HumanApprovalConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: HumanApprovalConfig) -> Self:
        return cls(timeout=config.timeout, prompt=config.prompt)


@contextlib.asynccontextmanager
async def _terminal_to_oneself() -> AsyncIterator[None]:
    while not _terminal.acquire(blocking=False):  # noqa: ASYNC110 (who holds it may run in another event loop)
        await asyncio.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        _terminal.release()


def _say_if_possible(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        say(text)

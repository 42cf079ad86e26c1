"""Asks the person at a chat one of some answers. Used where changes are accepted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from autogen_core import CancellationToken

from coderoom._util.tasks import await_with_token
from coderoom._util.terminal import asking
from coderoom.approval.human import discard_typed_ahead, input_descriptor, read_line, say
from coderoom.runs.interrupts import route_signals


async def ask(question: str, answers: Sequence[str]) -> str:
    """Ask the person one of some answers, of which the beginning is enough; no answer is a no."""
    token = CancellationToken()
    async with asking():
        descriptor = input_descriptor()
        if descriptor is None:
            return "n"
        discard_typed_ahead(descriptor)
        while True:
            say(question)
            try:
                with route_signals(token.cancel):
                    line = await await_with_token(read_line(descriptor), token)
            except asyncio.CancelledError:
                if not token.is_cancelled():
                    raise
                line = None
            if not os.isatty(descriptor) or line is None:
                say("\n")
            if line is None:
                return answers[-1] if answers[-1] in ("quit", "q") else "n"
            answer = {"yes": "y", "no": "n", "": "n"}.get(line.strip().lower(), line.strip().lower())
            if found := next((each for each in answers if each.startswith(answer)), None):
                return found
            say(f"Please answer {', '.join(answers[:-1])} or {answers[-1]}.\n")

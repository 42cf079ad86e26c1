"""Work that takes a while with much text is done in a thread, so that the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, Final, TypeVar

from coderoom._util.tasks import run_uncancellable

T = TypeVar("T")

LARGE: Final = 50_000
"""Characters that are looked at in the event loop; more of them would stop it for too long."""


def is_large(*data: Any) -> bool:
    """Whether texts, data of texts, or messages with texts have more characters than the event loop may look at."""
    left, size = [*data], 0
    while left and size <= LARGE:
        each = left.pop()
        if isinstance(each, str | bytes):
            size += len(each)
        elif isinstance(each, Mapping):
            left += each.values()
            size += len(each)
        elif isinstance(each, list | tuple):
            left += each
            size += len(each)
        elif (content := getattr(each, "content", None)) is not None:
            left.append(content)
        elif (picture := getattr(each, "image", None)) is not None:  # AutoGen encodes it whenever it is dumped.
            size += picture.width * picture.height
        elif is_dataclass(each):
            left += [getattr(each, each_field.name) for each_field in fields(each)]
    return size > LARGE


async def aside(work: Callable[..., T], *arguments: Any, large: bool = False) -> T:
    """Do something that takes a while with much text: in a thread if an argument, or what it works on, is `large`."""
    if large or is_large(*arguments):
        return await run_uncancellable(in_thread(work, *arguments))
    return work(*arguments)


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Do something in a thread, to its end even if the caller is cancelled; here if there can be no more threads."""
    try:
        done = asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, work, *arguments))
    except RuntimeError:
        return work(*arguments)
    return await asyncio.shield(done)

"""Requests for the files of a sandbox, which `guest.py` answers inside."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from importlib.resources import files as resources
from typing import Any, Final

from coderoom.integrations.service.e2b.connect import RpcError
from coderoom.integrations.service.e2b.helpers import BROKEN, Helper
from coderoom.integrations.service.e2b.sandboxes import E2BSandbox

_SOURCE: Final = resources(__package__).joinpath("guest.py").read_text("utf-8")
_MOST_FREE: Final = 2


async def started(sandbox: E2BSandbox) -> Helper:
    """A new helper."""
    argv = ["python", "-I", "-S", "-c", _SOURCE]
    return Helper(await sandbox.main.session.start(argv, wait_for_reader=True))


@asynccontextmanager
async def helper(sandbox: E2BSandbox) -> AsyncIterator[Helper]:
    """A helper for one request; it is used again if the request was answered."""
    found = None
    while sandbox.helpers and found is None:
        found = sandbox.helpers.pop()
        found = None if found.process.exit_code is not None else found
    found = found or await started(sandbox)
    is_free = False
    try:
        yield found
        is_free = True
    except RpcError as error:
        is_free = str(error) != BROKEN
        raise
    finally:
        if is_free and len(sandbox.helpers) < _MOST_FREE and found.process.exit_code is None:
            sandbox.helpers.append(found)
        else:
            await found.process.kill()


async def ask(sandbox: E2BSandbox, op: str, **facts: Any) -> dict[str, Any]:
    """The answer to a request.

    Raises:
        RpcError: It was refused.
    """
    async with helper(sandbox) as each:
        await each.send(json.dumps({"op": op, **facts}).encode())
        return await each.answer()


async def read(sandbox: E2BSandbox, path: str) -> AsyncGenerator[dict[str, Any] | bytes]:
    """What is known of a file, then its parts.

    Raises:
        RpcError: There is none.
    """
    async with helper(sandbox) as each:
        await each.send(json.dumps({"op": "read", "path": path}).encode())
        yield await each.answer()
        while part := await each.receive():
            yield part


async def write(
    sandbox: E2BSandbox, path: str, parts: AsyncGenerator[bytes], metadata: dict[str, str]
) -> dict[str, Any]:
    """Write a file and describe it.

    Raises:
        RpcError: It cannot be written.
    """
    async with helper(sandbox) as each:
        await each.send(json.dumps({"op": "write", "path": path, "metadata": metadata}).encode())
        async with aclosing(parts):
            async for part in parts:
                if part:
                    await each.send(part)
        await each.send(b"")
        found: dict[str, Any] = (await each.answer())["entry"]
        return found

"""A small MCP server over stdio, or over HTTP: `python -m tests.support.mcp_server [FILE [PORT]]`.

It writes its process id, and then each call that it answers, into FILE, one a line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP, Image
from mcp.types import ToolAnnotations
from PIL import Image as Picture

__all__ = ["server"]

server = FastMCP("stock", log_level="ERROR")
_stock = {"apples": 12, "pears": 5}


def _note(line: str) -> None:
    if len(sys.argv) > 1:
        with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def count(item: str) -> int:
    """How many of an item are in stock."""
    _note(f"count {item}")
    return _stock[item]


@server.tool(name="take-out", annotations=ToolAnnotations(destructiveHint=True))
def take_out(item: str, number: int = 1) -> str:
    """Take some of an item out of the stock."""
    _note(f"take_out {item} {number}")
    if number > _stock[item]:
        raise ValueError(f"there are only {_stock[item]} {item}")
    _stock[item] -= number
    return f"{_stock[item]} {item} are left"


@server.tool()
async def wait() -> str:
    """Wait for the delivery, which never comes."""
    _note("wait")
    await asyncio.Event().wait()
    return "it came"


@server.tool(annotations=ToolAnnotations(readOnlyHint=False))
def photograph() -> Image:
    """A picture of the store room."""
    path = Path(sys.argv[1]).with_name("store.png")
    Picture.new("RGB", (4, 4), "green").save(path)
    return Image(path=path)


@server.tool()
def collapse() -> str:
    """End the server's process at once."""
    _note("collapse")
    os._exit(3)


if __name__ == "__main__":
    _note(str(os.getpid()))
    if len(sys.argv) > 2:
        server.settings.port = int(sys.argv[2])
        server.run("streamable-http")
    else:
        server.run()

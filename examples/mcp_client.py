"""Runs two cells in CodeRoom with the official client of MCP."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    """Run two cells of one session."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "coderoom", "mcp"])
    async with stdio_client(server) as (reads, writes), ClientSession(reads, writes) as client:
        await client.initialize()
        await client.call_tool("run_code", {"code": "x = 40"})
        result = await client.call_tool("run_code", {"code": "x + 2"})
    assert result.structuredContent["value"] == 42


asyncio.run(main())

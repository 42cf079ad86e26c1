"""An MCP server over stdio with many tools: `python -m tests.support.many_tools COUNT`."""

from __future__ import annotations

import sys

from mcp.server.fastmcp import FastMCP

server = FastMCP("sensors", log_level="ERROR")


def _add(number: int) -> None:
    def read(place: str, unit: str = "celsius") -> str:
        return f"{number} at {place}"

    server.add_tool(read, f"read_sensor_{number}", description=f"Read sensor {number}, wherever it is.")


if __name__ == "__main__":
    for each in range(int(sys.argv[1])):
        _add(each)
    server.run()

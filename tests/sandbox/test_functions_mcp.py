"""The tools of MCP servers in a plain session: real servers, over stdio."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from autogen_core.tools import ToolOverride
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, mcp_server_tools

from coderoom.errors import RequestError
from coderoom.sandbox import Effect, Limits, Sandbox, host_functions
from tests.support.commands import ROOT

from .offered import error_of, run

NESTED = """
from typing import Annotated, Literal
from mcp.server.fastmcp import FastMCP
from pydantic import BaseModel, Field

server = FastMCP("parcels", log_level="ERROR")

class Address(BaseModel):
    street: str
    code: str = Field(description="five digits")

@server.tool()
def ship(to: Address, speed: Annotated[Literal["slow", "fast"], Field(description="how fast it goes")] = "slow") -> str:
    "Ship a parcel."
    return f"{to.street} {speed}"

@server.tool(name="class")
def travel() -> str:
    return "first"

server.run()
"""

FAILING = """
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

class Server(FastMCP):
    listed = 0

    async def list_tools(self):
        self.listed += 1
        if self.listed == 2:
            raise RuntimeError("not now")
        return await super().list_tools()

server = Server("failing", log_level="CRITICAL")

@server.tool(annotations=ToolAnnotations(destructiveHint=True))
def erase() -> str:
    return "erased"

server.run()
"""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """AutoGen logs each server that dies with its traceback."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(limits=Limits(wall_seconds=60)) as sandbox:
        yield sandbox


@pytest.fixture
def stock(tmp_path: Path) -> StdioServerParams:
    arguments = ["-m", "tests.support.mcp_server", str(tmp_path / "server.log")]
    return StdioServerParams(command=sys.executable, args=arguments, cwd=ROOT, read_timeout_seconds=60)


@pytest.fixture
def parcels(tmp_path: Path) -> StdioServerParams:
    (tmp_path / "parcels.py").write_text(NESTED)
    return StdioServerParams(command=sys.executable, args=[str(tmp_path / "parcels.py")], read_timeout_seconds=60)


@pytest.mark.slow
async def test_adapters_of_tools_answer_as_the_workbench_does(sandbox: Sandbox, stock: StdioServerParams) -> None:
    code = "try: take_out('apples', 99)\nexcept RuntimeError as error: said = str(error)\n"
    code += "[count('pears'), photograph()['type'], said]"
    tools = await mcp_server_tools(stock)
    one = await run(sandbox, code, *tools)
    async with McpWorkbench(stock) as workbench:
        other = await run(sandbox, code, workbench)
    assert one.value == other.value, one.output
    assert one.value == ["5", "image", "Error executing tool take-out: there are only 12 apples"]


@pytest.mark.slow
async def test_parameters_keep_their_shape(sandbox: Sandbox, parcels: StdioServerParams) -> None:
    workbench = McpWorkbench(parcels, tool_overrides={"class": ToolOverride(name="which")})
    async with workbench:
        shown = (await host_functions([workbench]))[0].describe()
        result = await run(
            sandbox, "[ship({'street': 'a', 'code': '1'}, 'fast'), which()]\nship({'street': 'a'})", workbench
        )
    assert shown == (
        "def ship(to: Address, speed: Literal['slow', 'fast'] = 'slow'):\n    \"\"\"Ship a parcel.\n\n"
        "    Address: a dict {'street': str, 'code': str (five digits)}\n    speed: how fast it goes\n    \"\"\""
    )
    assert error_of(result)[1] == "ship(): to: 'code' is a required property"
    assert [call.outcome.value for call in result.calls] == ["ok", "ok", "rejected"]
    tools = {tool.name: tool for tool in await mcp_server_tools(parcels)}
    shown = (await host_functions([tools["ship"]]))[0].describe()
    assert "to: {'street': str, 'code': str (five digits)}" in shown


@pytest.mark.slow
async def test_a_tool_whose_name_is_python_s_can_be_renamed(parcels: StdioServerParams) -> None:
    async with McpWorkbench(parcels) as workbench:
        with pytest.raises(RequestError, match=r"tool_overrides=\{'class': ToolOverride\(name='tool_class'\)\}"):
            await host_functions([workbench])


@pytest.mark.parametrize(
    ("command", "arguments", "cause"),
    [
        ("no-such-program", ["--fast"], "No such file or directory"),
        (sys.executable, ["-c", "raise SystemExit(3)"], ""),
    ],
)
async def test_a_server_that_cannot_be_started_is_a_clear_error(
    sandbox: Sandbox, command: str, arguments: Sequence[str], cause: str
) -> None:
    workbench = McpWorkbench(StdioServerParams(command=command, args=list(arguments)))
    for _ in range(2):
        with pytest.raises(RequestError, match="The workbench 'McpWorkbench' cannot be used") as caught:
            await run(sandbox, "1", workbench)
        assert cause in str(caught.value)
        assert f"its server `{command} {arguments[0]}" in str(caught.value)


@pytest.mark.slow
async def test_no_hint_of_a_server_is_lost_when_it_fails_to_list_its_tools_again(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(FAILING)
    arguments = [str(tmp_path / "server.py")]
    server = StdioServerParams(command=sys.executable, args=arguments, read_timeout_seconds=60)
    async with McpWorkbench(server) as workbench:
        with pytest.raises(RequestError, match="not now"):
            await host_functions([workbench])
        [erase] = await host_functions([workbench])
        assert erase.effect == Effect("write", is_hint=True)


@pytest.mark.slow
async def test_a_server_that_has_died_is_said_with_the_way_out(sandbox: Sandbox, stock: StdioServerParams) -> None:
    async with McpWorkbench(stock) as workbench:
        async with sandbox.session(functions=[workbench]) as session:
            assert "Connection closed" in error_of(await session.run("collapse()"))[1]
            silent = error_of(await session.run("count('pears')"))
            assert silent[0] == "RuntimeError"
            assert "tests.support.mcp_server" in silent[1]
        with pytest.raises(RequestError, match="stop it and start it again if its server has ended"):
            await run(sandbox, "1", workbench)
        await workbench.stop()
        await workbench.start()
        assert (await run(sandbox, "count('pears')", workbench)).value == "5"

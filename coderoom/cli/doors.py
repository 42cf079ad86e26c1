"""The commands that let other programs in: `mcp` for MCP clients."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Annotated

import typer

from coderoom.cli import app
from coderoom.cli.runs import WorkspaceOption

TOKEN_VARIABLE = "CODEROOM_TOKEN"

PortOption = Annotated[
    int | None, app.option("PORT", "Serve HTTP at this port; 0: one that is free.", "--http", min=0, max=65535)
]
HostOption = Annotated[str, app.option("ADDRESS", "The address of the HTTP server.", "--host")]


@app.command()
def mcp(
    http: PortOption = None,
    host: HostOption = "127.0.0.1",
    workspace: WorkspaceOption = None,
    wall: app.WallOption = "auto",
    network: Annotated[bool, typer.Option("--network", help="Let the code use the network.")] = False,
    timeout: Annotated[float | None, app.option("SEC", "The timeout of code.", "--timeout", min=0.1)] = None,
    preload: Annotated[
        list[str] | None, app.option("MODULE", "Import this once, for all sessions. May be repeated.", "--preload")
    ] = None,
    team: Annotated[
        list[str] | None, app.option("TEAM", "Offer this team as a tool. May be repeated.", "--team")
    ] = None,
    model: app.ModelOption = None,
    journal: app.JournalOption = None,
    no_journal: app.NoJournalOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Offer the sandbox to MCP clients.

    Without --http over standard input and output, as clients start it. With --http at http://ADDRESS:PORT/mcp, with
    the token of CODEROOM_TOKEN, or else a new one, which is shown.
    """
    from coderoom.integrations.http import Guard, serve_http
    from coderoom.integrations.mcp import MCPSettings, make_server
    from coderoom.runs import open_journal
    from coderoom.sandbox import Limits, SandboxConfig

    limits = Limits() if timeout is None else Limits(wall_seconds=timeout)
    sandbox = SandboxConfig(wall=wall, network=network, limits=limits, preload=preload or (), workspace=workspace)
    settings = MCPSettings(sandbox, team or (), model, open_journal(journal, off=no_journal))
    app.silence_autogen()
    if http is None:
        asyncio.run(make_server(settings).run_stdio_async())
        return
    server = make_server(settings, host=host)
    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)

    def ready(url: str) -> None:
        typer.echo(f"{url}/mcp")
        if not os.environ.get(TOKEN_VARIABLE):
            typer.echo(f"Authorization: Bearer {token}")

    asyncio.run(serve_http(Guard(server.streamable_http_app(), token), host, http, ready))

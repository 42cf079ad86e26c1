"""The commands that let other programs in: `mcp` for MCP clients, `serve` for chat clients."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coderoom.cli import app
from coderoom.cli.app import typer
from coderoom.cli.runs import (
    MaxTurnsOption,
    NetworkOption,
    TeamWallOption,
    TimeoutOption,
    WorkspaceModeOption,
    WorkspaceOption,
    budgets_of,
)
from coderoom.errors import RequestError

if TYPE_CHECKING:
    from coderoom.contracts import Door
    from coderoom.integrations.http import Guard

TOKEN_VARIABLE = "CODEROOM_TOKEN"
SERVER_TOKEN_VARIABLE = "CODEROOM_SERVER_TOKEN"

PortOption = Annotated[
    int | None, app.option("PORT", "Serve HTTP at this port; 0: one that is free.", "--http", min=0, max=65535)
]
HostOption = Annotated[str, app.option("ADDRESS", "The address of the HTTP server.", "--host")]


@app.command()
def mcp(
    http: PortOption = None,
    host: HostOption = "127.0.0.1",
    workspace: WorkspaceOption = None,
    workspace_mode: WorkspaceModeOption = None,
    wall: app.WallOption = "auto",
    network: app.NetworkOption = False,
    allowed_hosts: app.HostsOption = None,
    packages: app.PackageOption = None,
    allow_builds: app.AllowBuildsOption = None,
    credentials: app.CredentialsOption = None,
    timeout: app.CodeTimeoutOption = None,
    preload: app.PreloadOption = None,
    team: Annotated[
        list[str] | None,
        app.option(
            "TEAM", "Offer this team as a tool. May be repeated.", "--team", autocompletion=app.completion.teams
        ),
    ] = None,
    model: app.ModelOption = None,
    processes: Annotated[
        bool, typer.Option("--processes", help="Offer tools for processes that stay, such as servers.")
    ] = False,
    fixes: Annotated[
        bool, typer.Option("--fix", help="Offer a tool that fixes repositories in the workspace; see `coderoom fix`.")
    ] = False,
    skills: Annotated[
        Path | None, app.option("DIR", "Let code save functions here, and import them later.", "--skills")
    ] = None,
    local_network: app.LocalNetworkOption = False,
    server: app.ServerOption = None,
    env_file: app.EnvFileOption = None,
    journal: app.JournalOption = None,
    no_journal: app.NoJournalOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Offer the sandbox to MCP clients.

    Without --http over standard input and output, as clients start it. With --http at http://ADDRESS:PORT/mcp, with
    the token of CODEROOM_TOKEN, or else a new one, which is shown.
    """
    from coderoom.integrations.mcp import MCPServer
    from coderoom.runs import open_journal
    from coderoom.sandbox import Limits, SandboxConfig
    from coderoom.sandbox.remote import at_server

    if http is not None:
        _check_tokens(server)
    limits = Limits() if timeout is None else Limits(wall_seconds=timeout)
    sandbox = SandboxConfig(
        wall=wall,
        network=app.network_of(network, allowed_hosts),
        packages=app.packages_of(packages, allow_builds),
        limits=limits,
        preload=preload or (),
        workspace=workspace,
        workspace_mode=workspace_mode or "direct",
        local_network=local_network,
        credentials=app.credentials_of(credentials),
        **at_server(server),
    )
    kept = open_journal(journal, off=no_journal)
    door = MCPServer(
        sandbox,
        team or (),
        model=model,
        timeout=timeout,
        journal=kept,
        host=host,
        processes=processes,
        fixes=fixes,
        skills=skills,
    )
    try_out(door)
    if http is None:
        if sys.stdin.isatty():
            typer.echo("Waits for an MCP client, which starts this command by itself. Ctrl-C ends it.", err=True)
        # The thread that reads standard input cannot be interrupted. What the code has started ends with this process.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        asyncio.run(door.serve_stdio())
        return
    _serve(door, host, http)


@app.command()
def serve(
    team: app.TeamArgument,
    port: Annotated[int, app.option("PORT", "The port; 0: one that is free.", "--port", min=0, max=65535)] = 8000,
    host: HostOption = "127.0.0.1",
    model: app.ModelOption = None,
    wall: TeamWallOption = None,
    network: NetworkOption = None,
    allowed_hosts: app.HostsOption = None,
    credentials: app.CredentialsOption = None,
    local_network: app.TeamLocalNetworkOption = None,
    server: app.ServerOption = None,
    timeout: TimeoutOption = None,
    max_turns: MaxTurnsOption = None,
    budget: Annotated[
        list[str] | None, app.option("LIMIT=N", "A limit of each answer, as in tokens=20000.", "--budget")
    ] = None,
    requests_per_minute: Annotated[
        int, app.option("N", "The requests of each caller in a minute.", "--requests-per-minute", min=1)
    ] = 60,
    concurrency: Annotated[int, app.option("N", "The answers to each caller at a time.", "--concurrency", min=1)] = 4,
    public_url: Annotated[
        str | None,
        app.option("URL", "What links to files in answers begin with; by default, the host that a client names."),
    ] = None,
    ask_clients: Annotated[
        bool, typer.Option("--ask-clients", help="Ask clients, in the chat, what the team asks a person.")
    ] = False,
    env_file: app.EnvFileOption = None,
    journal: app.JournalOption = None,
    no_journal: app.NoJournalOption = False,
    debug: app.DebugOption = False,
) -> None:
    """Answer OpenAI's chat completions protocol with a team.

    The base URL is http://ADDRESS:PORT/v1. The keys of callers are in CODEROOM_TOKEN, separated by commas; without it
    there is a new one, which is shown. Each conversation has a folder of its own.
    """
    from coderoom.integrations.chat_completions import ChatServer
    from coderoom.integrations.links import LinksGuard
    from coderoom.models.budgets import make_budget
    from coderoom.runs import RunRequest, open_journal

    _check_tokens(server)
    limits, of_agents = budgets_of(budget)
    if of_agents:
        raise RequestError(f"--budget {next(iter(of_agents))}.…: `serve` limits whole answers, not single agents.")
    request = RunRequest(
        team,
        "",
        model=model,
        wall=wall,
        network=network,
        allowed_hosts=allowed_hosts or (),
        credentials=app.credentials_of(credentials),
        local_network=local_network,
        server=server,
        timeout=timeout,
        max_turns=max_turns,
    )
    door = ChatServer(
        request,
        budget=make_budget(limits),
        journal=open_journal(journal, off=no_journal),
        requests_per_minute=requests_per_minute,
        concurrency=concurrency,
        public_url=public_url,
        asks_clients=ask_clients,
    )
    try_out(door)
    _serve(door, host, port, LinksGuard)


def try_out(door: Door) -> None:
    """Find out what is missing before a client comes, and say what isolates code."""
    from coderoom._util.terminal import make_console
    from coderoom.runs.exec_view import show_isolation

    show_isolation(make_console(stderr=True), asyncio.run(door.try_out()))


def _check_tokens(server: str | None) -> None:
    """Refuse to send the tokens of callers to a server."""
    if server is not None and os.environ.get(TOKEN_VARIABLE) and SERVER_TOKEN_VARIABLE not in os.environ:
        raise RequestError(
            f"--server: {TOKEN_VARIABLE} has the tokens of those who call this command; set {SERVER_TOKEN_VARIABLE} "
            "to the one that the server knows, or to nothing if it needs none."
        )


def _serve(door: Door, host: str, port: int, guard: type[Guard] | None = None) -> None:
    from coderoom.integrations.http import Guard, serve_http

    given = [each.strip() for each in os.environ.get(TOKEN_VARIABLE, "").split(",") if each.strip()]
    tokens = given or [secrets.token_urlsafe(24)]

    def ready(url: str) -> None:
        typer.echo(f"{url}{door.path}")
        if not given:
            typer.echo(f"Authorization: Bearer {tokens[0]}")
            typer.echo(f"Clients send this key. It is new at each start; {TOKEN_VARIABLE} sets one.")

    asyncio.run(serve_http((guard or Guard)(door.app, tokens), host, port, ready))

"""An MCP server: the sandbox and the teams as tools for Claude Code, Cursor, VS Code and other clients.

Each client has a sandbox of its own, which ends with its MCP session. Used by `coderoom mcp`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import mimetypes
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, Field

from coderoom import __version__
from coderoom._util.files import copy_folder, files_inside, name_inside, read_inside, refusing, write_inside
from coderoom._util.tasks import cancel_and_wait, run_uncancellable
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom._util.text import bound_output, encodable
from coderoom.errors import CodeRoomError, RequestError
from coderoom.integrations.tool import missing, text_of
from coderoom.outcome import Outcome
from coderoom.sandbox import (
    LANGUAGES,
    Checkpoint,
    ExecutionResult,
    HostFunction,
    ProcessTools,
    Sandbox,
    SandboxConfig,
    Session,
)
from coderoom.sandbox.config import OBSERVE, network_in_words
from coderoom.sandbox.process_tools import Command, Input, Number, Seconds, Terminal
from coderoom.skills import Skills

try:
    import anyio
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.server.fastmcp.exceptions import ToolError
    from mcp.server.stdio import stdio_server
    from mcp.types import (
        BlobResourceContents,
        CallToolResult,
        ClientCapabilities,
        ContentBlock,
        ElicitationCapability,
        EmbeddedResource,
        ImageContent,
        TextContent,
        Tool,
        ToolAnnotations,
    )

    # What it needs besides comes with the SDK, whose absence is told first.
    from coderoom.integrations.http import CALLER, LEFT, Message, Receive, Send, failure
except ImportError as error:
    raise missing("The MCP SDK", "mcp") from error

if TYPE_CHECKING:
    from coderoom.contracts import WebApp
    from coderoom.runs import Journal

_MOST_CLIENTS: Final = 256
_IDLE_SECONDS: Final = 30 * 60.0
_MOST_SESSIONS: Final = 16
_MOST_CHECKPOINTS: Final = 16
_MOST_FILES: Final = 1_000
_MOST_CHARACTERS: Final = 30_000
_LARGEST_FILE: Final = 8 * 1024 * 1024
_REPORT_SECONDS: Final = 0.5
_LONGEST_REPORT: Final = 500
_MAIN: Final = "main"
_SESSION: Final = b"mcp-session-id"
_RULES: Final = """\
Runs code in {place}. Variables of a session stay from call to call. Files are in the working folder, which
all sessions share; code finds them by relative paths. {reach}"""
_ISOLATED: Final = {
    "place": "an isolated sandbox",
    "reach": "Nothing else of the user's machine is visible. {network}",
}
_NOT_ISOLATED: Final = {
    "place": "ordinary processes of the user",
    "reach": "It is not isolated: it can read and change the user's other files, and use the network.",
}
_SKILLS: Final = """\
Python code in a session can call functions that keep code for later: search_skills(query) finds functions that \
earlier code has left, `from skills import NAME` imports one, read_skill(name) shows it, and save_skill(name, \
tests="assert NAME(1) == 2") keeps a function of the session that has a docstring and passes its tests."""

T = TypeVar("T")
SessionName = Annotated[str, Field(min_length=1, max_length=100, description="The session, whose variables stay.")]
FileName = Annotated[str, Field(min_length=1, max_length=1_000, description="A path in the working folder.")]
_READS: Final = ToolAnnotations(readOnlyHint=True, openWorldHint=False)
_ADDS: Final = ToolAnnotations(readOnlyHint=False, destructiveHint=False, openWorldHint=False)
_WRITES: Final = ToolAnnotations(readOnlyHint=False, destructiveHint=True, openWorldHint=False)


class CellFacts(BaseModel):
    """What a program reads of a cell."""

    outcome: Annotated[str, Field(json_schema_extra={"enum": [*Outcome]})]
    exit_code: int
    output: str
    value: Annotated[
        Any, Field(description="The value of the last expression: data, or what it shows if it is none or too large.")
    ]
    error: Annotated[str | None, Field(description="The type of the exception and its message.")]
    seconds: float
    artifacts: Annotated[list[str], Field(description="The files that the code has made, in the working folder.")]
    state_lost: Annotated[bool, Field(description="Whether the variables of the session are gone.")]
    network: Annotated[list[dict[str, Any]], Field(description="The hosts that it asked for, and why one was refused.")]


class Answer(BaseModel):
    """What a person answers to a question of a team about its code."""

    answer: Annotated[str, Field(description="As the question says: yes, no, no and why, always, or edit: ...")]


class RunFacts(BaseModel):
    """What a program reads of a team's run."""

    outcome: str
    answer: str
    error: str | None
    limit: Annotated[str | None, Field(description="The limit that ended it.")]
    turns: int
    attempts: int
    files: list[str]
    usage: Annotated[dict[str, int], Field(description="Tokens.")]
    cost_usd: float | None
    run: Annotated[str | None, Field(description="Its name in the journal.")]


class FixFacts(BaseModel):
    """What a program reads of the fix of a repository."""

    succeeded: Annotated[bool, Field(description="Whether all tests, as they were, pass with the patch.")]
    before: Annotated[dict[str, int], Field(description="How many tests passed, failed and were skipped.")]
    after: Annotated[dict[str, int] | None, Field(description="The same tests with the patch.")]
    with_changed_tests: Annotated[dict[str, int] | None, Field(description="The tests as the patch changes them.")]
    tests_changed: Annotated[list[str], Field(description="What of the patch belongs to the tests and did not count.")]
    problems: list[str]
    left_out: Annotated[list[str], Field(description="What the team has changed that is not in the patch, and why.")]
    notes: list[str]
    changes: list[str]
    patch: Annotated[str, Field(description="For `git apply`; empty if there is none, or if it is attached as a file.")]
    run: Annotated[str | None, Field(description="Its name in the journal.")]


class Client:
    """What a client has: a sandbox, its folder, and sessions with their checkpoints."""

    def __init__(self, config: SandboxConfig, functions: Sequence[HostFunction] = ()) -> None:
        self._functions = functions
        self._temporary = config.workspace is None
        self.folder = temporary_folder() if self._temporary else Path(str(config.workspace))
        self.sandbox = Sandbox.from_config(
            config.model_copy(update={"workspace": self.folder, "describe_tables": True})
        )
        self.sessions: dict[str, Session] = {}
        self._processes: dict[str, ProcessTools] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self._count = 0

    def session(self, name: str) -> Session:
        """The session of this name, which is made if it is not there."""
        if name not in self.sessions:
            if len(self.sessions) == _MOST_SESSIONS:
                raise RequestError(f"There are {_MOST_SESSIONS} sessions; end one of them by end_session.")
            self.sessions[name] = self.sandbox.session(functions=self._functions)
        return self.sessions[name]

    def processes(self, name: str) -> ProcessTools:
        """The processes of the session of this name."""
        if name not in self._processes:
            self._processes[name] = ProcessTools(lambda: self.session(name))
        return self._processes[name]

    async def checkpoint(self, name: str, files: bool) -> str:
        """Keep the state of a session; return what the checkpoint is called. Of many, the oldest is given up."""
        found = await self.session(name).checkpoint(files=files)
        self._count += 1
        made = f"{name}-{self._count}"
        self.checkpoints[made] = found
        if len(self.checkpoints) > _MOST_CHECKPOINTS:
            await self._release([next(iter(self.checkpoints))])
        return made

    async def _release(self, made: Sequence[str]) -> None:
        for each in made:
            if (found := self.checkpoints.pop(each, None)) is not None:
                await found.session.release(found)

    async def rollback(self, made: str) -> str:
        """Return to a checkpoint; return the name of its session."""
        if made not in self.checkpoints:
            raise RequestError(f"There is no checkpoint {made!r}; there are: {', '.join(self.checkpoints) or 'none'}.")
        found = self.checkpoints[made]
        await found.session.rollback(found)
        own = self._of(found.session)
        await self._release(own[own.index(made) + 1 :])  # Those after it are discarded.
        return made.rpartition("-")[0]

    def _of(self, session: Session) -> list[str]:
        return [made for made, found in self.checkpoints.items() if found.session is session]

    async def end_session(self, name: str) -> None:
        """End a session and its checkpoints."""
        session = self.sessions.pop(name, None)
        self._processes.pop(name, None)
        if session is None:
            raise RequestError(f"There is no session {name!r}; there are: {', '.join(self.sessions) or 'none'}.")
        try:
            await self._release(self._of(session))
        finally:
            await session.close()

    async def close(self) -> None:
        """End everything, and leave nothing behind."""
        await self._release(list(self.checkpoints))
        await self.sandbox.close()
        self.sessions.clear()
        if self._temporary:
            await asyncio.to_thread(remove_folder, self.folder)


class _Tools(FastMCP[Client]):
    """FastMCP passes over arguments that a tool does not have, so that a misspelt one would have no effect."""

    async def list_tools(self) -> list[Tool]:
        tools = await super().list_tools()
        return [
            tool.model_copy(update={"inputSchema": {**tool.inputSchema, "additionalProperties": False}})
            for tool in tools
        ]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        tool = self._tool_manager.get_tool(name)
        known = {} if tool is None else tool.parameters.get("properties", {})
        unknown = [] if tool is None else [repr(each) for each in arguments if each not in known]
        if unknown:
            has = f"its arguments are {', '.join(known)}" if known else "it has none"
            raise ToolError(f"{name} has no argument {' and no '.join(unknown):.200}; {has}.")
        return await super().call_tool(name, arguments)


class MCPServer:
    """Offers a sandbox and teams to MCP clients.

    Args:
        sandbox: The sandbox of each client. Without a workspace, each client has a temporary one.
        teams: The teams that are tools: files, or names of shipped teams.
        model: The model that replaces those of the teams.
        timeout: The seconds that code of teams may run, in place of those of their files.
        journal: Where the runs of teams are kept; `None`: nowhere.
        host: The address at which it is served by HTTP.
        processes: Whether there are tools for processes that stay.
        fixes: Whether the team `maintainer` fixes repositories in the working folder.
        skills: The folder of functions that code saves, and imports later; `None`: there is none.

    Raises:
        RequestError: Code could write to the folder of skills, or could not use them.
    """

    path = "/mcp"

    def __init__(
        self,
        sandbox: SandboxConfig,
        teams: Sequence[str] = (),
        *,
        model: str | None = None,
        timeout: float | None = None,
        journal: Journal | None = None,
        host: str = "127.0.0.1",
        processes: bool = False,
        fixes: bool = False,
        skills: str | Path | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._skills = skills
        if skills is not None:
            Skills.like(skills, sandbox).check_apart(sandbox.workspace)
        self._fixes = fixes
        self._processes = processes
        self._teams = teams
        self._journal = journal
        self._host = host
        wall = None if sandbox.wall == "auto" else sandbox.wall
        self._options: dict[str, Any] = {
            "model": model,
            "timeout": timeout,
            "wall": wall,
            "server": sandbox.options.get("url") if sandbox.engine == "remote" else None,
            "workspace_mode": None if sandbox.workspace_mode == "direct" else sandbox.workspace_mode,
            "network": sandbox.host_network or None,
            "allowed_hosts": () if isinstance(sandbox.network, bool) else sandbox.network or (OBSERVE,),
            "credentials": {
                host: {"header": each.header, "value": each.value.get_secret_value()}
                for host, each in sandbox.credentials.items()
            },
        }

    async def try_out(self) -> str:
        """See `coderoom.contracts.Door`."""
        client = Client(self._sandbox)
        try:
            await client.sandbox.start()
            if self._teams or self._fixes:  # AutoGen takes a second to be imported.
                from coderoom.configs import find_source
                from coderoom.runs.team_run import WORKSPACE_VARIABLE, RunRequest
                from coderoom.runs.team_run import try_out as try_team

                for source in map(find_source, [*self._teams, *(["maintainer"] if self._fixes else [])]):
                    workspace = client.folder if source.refers_to(WORKSPACE_VARIABLE) else None
                    request = RunRequest(source, "Is all there?", workspace=workspace, **self._options)
                    await try_team(request.prepare().team)
            return client.sandbox.wall
        finally:
            await client.close()

    @property
    def app(self) -> WebApp:
        """A new application, for HTTP."""
        server = self._server(host=self._host, max_sessions=_MOST_CLIENTS, session_idle_timeout=_IDLE_SECONDS)
        return _OwnSessions(server.streamable_http_app())

    async def serve_stdio(self) -> None:
        """Serve one client over standard input and output, until it closes them.

        Nothing else may read or write there: for the rest of the process, standard input is empty, and standard output
        is standard error.
        """
        reads = os.fdopen(os.dup(0), encoding="utf-8", errors="replace")
        writes = os.fdopen(os.dup(1), "w", encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        inner = self._server()._mcp_server
        async with stdio_server(anyio.wrap_file(reads), anyio.wrap_file(writes)) as (incoming, outgoing):
            await inner.run(incoming, outgoing, inner.create_initialization_options())

    def _server(self, **http: Any) -> FastMCP[Client]:
        @asynccontextmanager
        async def one_client(_: FastMCP[Client]) -> AsyncIterator[Client]:
            skills = None if self._skills is None else Skills.like(self._skills, self._sandbox)
            client = Client(self._sandbox, () if skills is None else await skills.functions())
            try:
                yield client
            finally:
                await run_uncancellable(client.close())
                if skills is not None:
                    await run_uncancellable(skills.close())

        words = _NOT_ISOLATED if self._sandbox.wall == "none" else _ISOLATED
        network = network_in_words(self._sandbox.network, self._sandbox.credentials)
        rules = _RULES.format(place=words["place"], reach=words["reach"].format(network=network))
        rules += "" if self._skills is None else f"\n{_SKILLS}"
        # It would write its log, and that of all others, as boxes of 80 columns.
        logging.basicConfig(level=logging.ERROR)
        server = _Tools("coderoom", rules, lifespan=one_client, log_level="ERROR", **http)
        server._mcp_server.version = __version__
        # It reports each client that ends its connection as an error.
        logging.getLogger("mcp.server.streamable_http").setLevel(logging.CRITICAL)
        _add_code(server)
        if self._processes:
            _add_processes(server)
        _add_files(server) if self._sandbox.workspace_mode == "direct" else _add_changes(server)
        if self._fixes:
            _add_fixes(server, self._journal, **self._options)
        for team in self._teams:
            _add_team(server, team, self._journal, **self._options)
        return server


class _OwnSessions:
    """Passes on requests of an MCP session only from the caller that made it; others are told that there is none."""

    def __init__(self, app: WebApp) -> None:
        self._app = app
        self._owners: dict[bytes, int] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller, given = scope[CALLER], dict(scope["headers"]).get(_SESSION, b"")
        if self._owners.get(given, caller) != caller:
            await failure(404, "There is no such session.")(scope, receive, send)
            return

        async def noted(message: Message) -> None:
            made = dict(message.get("headers", ())).get(_SESSION)
            if made:
                self._owners.setdefault(made, caller)
            await send(message)

        await self._app(scope, receive, noted)
        if scope["method"] == "DELETE":
            self._owners.pop(given, None)


def _add_code(server: FastMCP[Client]) -> None:
    @server.tool(title="Run code", annotations=_WRITES, structured_output=True)
    async def run_code(
        code: str,
        ctx: Context[Any, Client, Any],
        language: Annotated[str, Field(json_schema_extra={"enum": [*LANGUAGES]})] = "python",
        session: SessionName = _MAIN,
        fresh: Annotated[bool, Field(description="Run it in a fresh state, without the session's variables.")] = False,
        timeout: Annotated[float | None, Field(gt=0, le=86_400, description="The most seconds.")] = None,
        stdin: Annotated[str | None, Field(description="What the code reads from standard input.")] = None,
    ) -> Annotated[CallToolResult, CellFacts]:
        """Run code; return its output, the value of a last expression, its error, and the pictures it has made."""
        client, lines = _client_of(ctx), list[str]()
        if fresh:
            work = client.sandbox.run(code, language=language, timeout=timeout, stdin=stdin)
        else:
            work = client.session(session).run(
                code,
                language=language,
                timeout=timeout,
                stdin=stdin,
                on_output=lambda chunk: lines.append(chunk.text),
            )
        return _cell_result(client, await _watched(ctx, work, lines), not fresh)

    @server.tool(title="Keep the state", annotations=_ADDS, structured_output=False)
    async def checkpoint(
        ctx: Context[Any, Client, Any],
        session: SessionName = _MAIN,
        files: Annotated[bool, Field(description="Keep the files too.")] = True,
    ) -> str:
        """Keep the variables of a session and all files, to return to them by rollback; return the checkpoint."""
        return await _watched(ctx, _client_of(ctx).checkpoint(session, files))

    @server.tool(title="Return to a checkpoint", annotations=_WRITES, structured_output=False)
    async def rollback(checkpoint: str, ctx: Context[Any, Client, Any]) -> str:
        """Give a session the variables, and the working folder the files, that they had at a checkpoint."""
        name = await _watched(ctx, _client_of(ctx).rollback(checkpoint))
        return f"The session {name!r} and the files are as they were at the checkpoint {checkpoint!r}."

    @server.tool(title="End a session", annotations=_WRITES, structured_output=False)
    async def end_session(ctx: Context[Any, Client, Any], session: SessionName = _MAIN) -> str:
        """End a session: its variables and checkpoints are gone, files stay."""
        await _watched(ctx, _client_of(ctx).end_session(session))
        return f"The session {session!r} has ended."


def _add_processes(server: FastMCP[Client]) -> None:
    @server.tool(title="Start a process", annotations=_WRITES, structured_output=False)
    async def start_process(
        command: Command,
        ctx: Context[Any, Client, Any],
        session: SessionName = _MAIN,
        terminal: Terminal = False,
        seconds: Seconds = 2.0,
    ) -> str:
        """Start a program that stays beside later code, such as a server or a shell; return its number and output."""
        return await _watched(ctx, _client_of(ctx).processes(session).start_process(command, terminal, seconds))

    @server.tool(title="Read from a process", annotations=_ADDS, structured_output=False)
    async def read_process(
        process: Number, ctx: Context[Any, Client, Any], session: SessionName = _MAIN, seconds: Seconds = 2.0
    ) -> str:
        """Return what a process has printed since the last time, and whether it still runs."""
        return await _watched(ctx, _client_of(ctx).processes(session).read_process(process, seconds))

    @server.tool(title="Write to a process", annotations=_WRITES, structured_output=False)
    async def write_process(
        process: Number,
        text: Input,
        ctx: Context[Any, Client, Any],
        session: SessionName = _MAIN,
        seconds: Seconds = 2.0,
    ) -> str:
        """Write to the standard input of a process; return what it prints then."""
        return await _watched(ctx, _client_of(ctx).processes(session).write_process(process, text, seconds))

    @server.tool(title="Stop a process", annotations=_WRITES, structured_output=False)
    async def stop_process(process: Number, ctx: Context[Any, Client, Any], session: SessionName = _MAIN) -> str:
        """End a process and what it has started; return the rest of its output."""
        return await _watched(ctx, _client_of(ctx).processes(session).stop_process(process))


def _add_files(server: FastMCP[Client]) -> None:
    @server.tool(title="List files", annotations=_READS, structured_output=False)
    async def list_files(ctx: Context[Any, Client, Any]) -> str:
        """List the files in the working folder, with their sizes in bytes."""
        found = await asyncio.to_thread(lambda: sorted(files_inside(_client_of(ctx).folder)))
        shown = [(name if name.isprintable() else ascii(name), size) for name, size in found[:_MOST_FILES]]
        lines = [f"{size:>12,}  {name}" for name, size in shown]
        left = len(found) - len(lines)
        return "\n".join([*lines, *([f"... and {left:,} more"] if left else [])]) or "There are no files."

    @server.tool(title="Read a file", annotations=_READS, structured_output=False)
    async def read_file(path: FileName, ctx: Context[Any, Client, Any]) -> list[ContentBlock]:
        """Read a file of the working folder: text, a picture, or other data as base64."""
        return [_content_of(path, await _file_work(read_inside, _client_of(ctx), path, _LARGEST_FILE))]

    @server.tool(title="Write a file", annotations=_WRITES, structured_output=False)
    async def write_file(
        path: FileName,
        content: str,
        ctx: Context[Any, Client, Any],
        encoding: Annotated[Literal["text", "base64"], Field(description="What the content is.")] = "text",
    ) -> str:
        """Write a file into the working folder. Folders in its path are made."""
        try:
            data = base64.b64decode(content, validate=True) if encoding == "base64" else content.encode()
        except (binascii.Error, UnicodeEncodeError) as error:
            raise ToolError(f"The content is not valid {encoding}: {error}.") from error
        await _file_work(write_inside, _client_of(ctx), path, data)
        return f"Wrote {len(data):,} bytes to {path}."


def _add_changes(server: FastMCP[Client]) -> None:
    @server.tool(title="Show the changes", annotations=_READS, structured_output=False)
    async def show_changes(ctx: Context[Any, Client, Any], session: SessionName = _MAIN) -> str:
        """Show what the code of a session has changed in the user's folder, which is as it was: a list and a diff."""
        own = _client_of(ctx).session(session)

        async def work() -> str:
            changes, patch = await own.changes(), await own.diff()
            return bound_output(f"{changes}\n\n{patch}".strip(), _MOST_CHARACTERS) or "Nothing has changed."

        return encodable(await _watched(ctx, work()))

    @server.tool(title="Write the changes", annotations=_WRITES, structured_output=False)
    async def commit_changes(ctx: Context[Any, Client, Any], session: SessionName = _MAIN) -> str:
        """Write what a session has changed into the user's folder, unless somebody has changed the same files."""
        done = await _watched(ctx, _client_of(ctx).session(session).commit())
        lines = [*(f"written: {each}" for each in done.written), *map(str, done.refused)]
        return encodable(bound_output("\n".join(lines), _MOST_CHARACTERS)) or "Nothing has changed."

    @server.tool(title="Undo the changes", annotations=_WRITES, structured_output=False)
    async def discard_changes(ctx: Context[Any, Client, Any], session: SessionName = _MAIN) -> str:
        """Undo what a session has changed: it sees the user's folder as it is."""
        await _watched(ctx, _client_of(ctx).session(session).discard())
        return f"The session {session!r} has no changes."


def _add_team(server: FastMCP[Client], team: str, journal: Journal | None, /, **options: Any) -> None:
    # AutoGen takes a second to be imported.
    from autogen_core import CancellationToken

    from coderoom.approval.human import instead_of_terminal
    from coderoom.configs import find_source, shipped_teams
    from coderoom.runs import WORKSPACE_VARIABLE, Run, RunRequest

    name = "team_" + "".join(each if each.isascii() and each.isalnum() else "_" for each in Path(team).stem)
    if server._tool_manager.get_tool(name) is not None:
        raise RequestError(f"Two teams would be the tool {name!r}; rename the file {team!r}.")
    source = find_source(team)
    about = shipped_teams().get(team, f"The team of the file {Path(team).name}.")

    @server.tool(
        name,
        title=f"Ask the team {Path(team).stem}",
        description=f"Have a team of agents do a task in the working folder. {about}",
        annotations=_WRITES,
        structured_output=True,
    )
    async def run_team(
        task: Annotated[str, Field(min_length=1, description="What to do.")], ctx: Context[Any, Client, Any]
    ) -> Annotated[CallToolResult, RunFacts]:
        client, lines = _client_of(ctx), list[str]()

        async def ask(question: str, token: CancellationToken | None) -> str:
            answered = await ctx.elicit(question, Answer)
            return answered.data.answer if answered.action == "accept" else "no"

        async def work() -> CallToolResult:
            if ctx.session.check_client_capability(ClientCapabilities(elicitation=ElicitationCapability())):
                instead_of_terminal.set(ask)  # In the context of this task.
            workspace = client.folder if source.refers_to(WORKSPACE_VARIABLE) else None
            request = RunRequest(source, task, workspace=workspace, **options)
            run = Run.begin(request.prepare(), journal)
            record = await run.go(_noting(lines), token=CancellationToken())
            facts = record.to_json()
            kept = ("outcome", "answer", "error", "limit", "turns", "attempts", "files", "usage", "cost_usd", "run")
            known = {name: facts[name] for name in kept}
            text = record.end_in_words
            if record.reviewed is not None:  # The folder is as it was.
                text += "\n\n" + bound_output(record.reviewed.diff, _MOST_CHARACTERS)
            return _result(text, known, is_error=not record.succeeded)

        return await _watched(ctx, work(), lines)


def _add_fixes(server: FastMCP[Client], journal: Journal | None, /, **options: Any) -> None:
    @server.tool(title="Fix a repository", annotations=_ADDS, structured_output=True)
    async def fix_repository(
        problem: Annotated[str, Field(min_length=1, description="What is wrong, such as the text of an issue.")],
        ctx: Context[Any, Client, Any],
        path: Annotated[FileName, Field(description="The repository's folder in the working folder.")] = ".",
        test: Annotated[str, Field(min_length=1, description="The test command of the repository.")] = "pytest -q",
    ) -> Annotated[CallToolResult, FixFacts]:
        """Have a team fix a repository, which stays as it is; return the verdicts of its tests and a patch."""
        from autogen_core import CancellationToken

        from coderoom.runs import Run, RunRecord, RunRequest
        from coderoom.runs.fix import TEAM, fix, task_of
        from coderoom.runs.review import Ask

        root, lines = _client_of(ctx).folder, list[str]()

        async def work() -> CallToolResult:
            wall, server, timeout = options["wall"] or "auto", options["server"], options["timeout"]
            with TemporaryDirectory() as place:
                folder, out = _folder_in(root, path), Path(place, "fix.patch")
                if folder != root:  # Code that runs meanwhile could put a link to another folder in its place.
                    with refusing("The working folder cannot be copied"):
                        await asyncio.to_thread(copy_folder, root, Path(place, "copy"))
                    folder = _folder_in(Path(place, "copy"), path)
                task, mode = task_of(folder, problem, test), {"workspace_mode": "overlay"}
                request = RunRequest(TEAM, task, workspace=folder, **{**options, **mode})

                async def team(ask: Ask) -> RunRecord:
                    run = Run.begin(request.prepare(), journal)
                    return await run.go(_noting(lines), token=CancellationToken(), ask=ask)

                fixed = await fix(folder, test, team, out=out, wall=wall, server=server, timeout=timeout)
                data = await asyncio.to_thread(out.read_bytes) if fixed.patch else b""
            patch, attached = "", list[ContentBlock]()
            try:
                patch = data.decode()
            except UnicodeDecodeError:
                attached = [_content_of("fix.patch", data)]
                fixed.notes.append("The patch is not UTF-8: it is attached as a file.")
            facts = fixed.to_json() | {"patch": patch, "run": fixed.record.run}
            text = f"{replace(fixed, patch=None)}\n\n{bound_output(patch, _MOST_CHARACTERS)}".rstrip()
            known = {name: facts[name] for name in FixFacts.model_fields}
            return _result(text, known, attached, is_error=not fixed.succeeded)

        return await _watched(ctx, work(), lines)


def _folder_in(root: Path, path: str) -> Path:
    folder = root if path == "." else root / name_inside(path)
    if not folder.is_dir() or not folder.resolve().is_relative_to(root.resolve()):
        raise RequestError(f"{path!r} is no folder in the working folder.")
    return folder


def _noting(lines: list[str]) -> Callable[[Any], None]:
    """Takes the messages of a team, and adds what is said to lines."""
    from coderoom.runs.story import Story, Streamed

    story = Story()

    def note(message: Any) -> None:
        told = story.tell(message)
        if not isinstance(told, Streamed):
            lines.append(f"{told.source}: {told.text}\n")

    return note


def _client_of(ctx: Context[Any, Client, Any]) -> Client:
    client: Client = ctx.request_context.lifespan_context
    return client


async def _watched(ctx: Context[Any, Client, Any], work: Coroutine[Any, Any, T], lines: list[str] | None = None) -> T:
    """Do work, and report its progress. If the client cancels it, or has left, the work ends.

    The work is a task of its own, since a cancelled request would cancel each step of its end anew.
    """
    task, begun = asyncio.ensure_future(work), monotonic()
    request = ctx.request_context.request
    left = None if request is None else request.scope.get(LEFT)
    try:
        while not (await asyncio.wait((task,), timeout=_REPORT_SECONDS))[0]:
            if left is not None and left.is_set():
                raise ToolError("The client has left.")
            text = "".join(lines or ())[-_LONGEST_REPORT:]
            if lines:
                lines.clear()
            await ctx.report_progress(round(monotonic() - begun, 1), None, text or "It is running.")
        return task.result()
    except CodeRoomError as error:
        raise ToolError(encodable(str(error))) from error
    finally:
        await run_uncancellable(cancel_and_wait(task))


def _cell_result(client: Client, result: ExecutionResult, in_session: bool) -> CallToolResult:
    content: list[ContentBlock] = []
    room = _LARGEST_FILE
    for artifact in result.artifacts:
        if artifact.media_type.startswith("image/") and artifact.size <= room:
            room -= artifact.size
            with suppress(OSError, RequestError):
                data = artifact.data
                if data is None:
                    data = read_inside(client.folder, artifact.name, _LARGEST_FILE)
                content.append(_content_of(artifact.name, data))
    value = _plain(result.value) if result.value_is_data else result.value_repr
    if len(json.dumps(value)) > _MOST_CHARACTERS:  # Some clients show it to their models.
        value = result.value_repr
    known = {
        "outcome": result.outcome.value,
        "exit_code": result.exit_code,
        "output": bound_output(result.output, _MOST_CHARACTERS),
        "value": value,
        "error": None if result.error is None else f"{result.error.type}: {result.error.message}",
        "seconds": round(result.duration, 3),
        "artifacts": [artifact.name for artifact in result.artifacts],
        "state_lost": result.state_lost,
        "network": [vars(each) for each in result.network],
    }
    shown = bound_output(text_of(result, client.sandbox.limits, in_session=in_session), _MOST_CHARACTERS)
    return _result(shown, known, content, is_error=not result.success)


def _result(text: str, known: dict[str, Any], more: Sequence[ContentBlock] = (), *, is_error: bool) -> CallToolResult:
    """The text is for a model, and what is known for a program."""
    content = [TextContent(type="text", text=encodable(text)), *more]
    return CallToolResult(content=content, structuredContent=_plain(known), isError=is_error)


def _plain(value: Any) -> Any:
    """A value as data that JSON can carry."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {encodable(str(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    is_number = isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    return value if value is None or is_number else str(value)


def _content_of(name: str, data: bytes) -> ContentBlock:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if kind.startswith("image/") and kind != "image/svg+xml":
        return ImageContent(type="image", data=base64.b64encode(data).decode(), mimeType=kind)
    with suppress(UnicodeDecodeError):
        return TextContent(type="text", text=data.decode())
    blob = BlobResourceContents(
        uri=f"file:///{name}",  # type: ignore[arg-type]
        mimeType=kind,
        blob=base64.b64encode(data).decode(),
    )
    return EmbeddedResource(type="resource", resource=blob)


async def _file_work(work: Any, client: Client, path: str, *more: Any) -> Any:
    try:
        return await asyncio.to_thread(work, client.folder, name_inside(path), *more)
    except OSError as error:
        raise ToolError(f"The file {path!r} cannot be used: {error.strerror or error}.") from error
    except (CodeRoomError, ValueError) as error:
        raise ToolError(str(error)) from error

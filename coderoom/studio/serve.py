"""AutoGen Studio's server, as the program that runs in its own environment: `python -m coderoom.studio.serve`.

It guards Studio's pages, which have no authentication, and adds CSS to them. Studio makes a team for each run, and
closes only the agents directly in it. Some of AutoGen's parts ignore the end of a run, and some are never closed: the
server closes and ends them. It also shows more of a run.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import uvicorn

from coderoom._util.autogen import agents_of, closers_of
from coderoom._util.closing import at_end_of_run, closing_what_opens
from coderoom.executors import adopt_orphans, end_descendants
from coderoom.runs.story import output_of
from coderoom.studio.autogenstudio import SETTINGS, application, current_run, going_runs, store
from coderoom.studio.messages import StudioMessages, changes_messages, error_message, run_message

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_GRACE_SECONDS: Final = 2
_LAST_SECONDS: Final = 3.5


def serve(appdir: str, port_fd: int, life_fd: int, *lock_fds: int) -> None:
    """Serve until the other end of the pipe `life_fd`, which the parent process holds, is closed, or a signal comes.

    Descriptors of `lock_fds` are kept open while this process lives.
    """
    for fd in (port_fd, life_fd, *lock_fds):
        os.set_inheritable(fd, False)
    adopt_orphans()
    with socket.socket(fileno=port_fd) as listening:
        host, port = listening.getsockname()
        # The user may have settings for another Studio, such as its database.
        for name in [name for name in os.environ if name.startswith(SETTINGS)]:
            del os.environ[name]
        settings = {"APPDIR": appdir, "HOST": host, "PORT": str(port)}
        os.environ.update({SETTINGS + name: value for name, value in settings.items()})
        server = uvicorn.Server(
            uvicorn.Config(
                _studio,
                factory=True,
                access_log=False,
                use_colors=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )
        threading.Thread(target=_end_with, args=(life_fd, server), daemon=True).start()
        asyncio.run(_serve(server, listening))
    end_descendants()


async def _serve(server: uvicorn.Server, listening: socket.socket) -> None:
    asyncio.get_running_loop().set_task_factory(note_task)
    ending = asyncio.create_task(end_runs())
    try:
        await server.serve(sockets=[listening])
    finally:
        ending.cancel()


def _studio() -> Any:
    # Otherwise the first run would wait for these imports, and so would stopping it.
    import coderoom.agents
    import coderoom.teams  # noqa: F401

    return _guarded(application(with_messages))


def _end_with(life_fd: int, server: uvicorn.Server) -> None:
    os.read(life_fd, 1)
    server.should_exit = True  # uvicorn's own signal handler does the same.
    time.sleep(_LAST_SECONDS)
    # Something blocks it.
    end_descendants()
    os._exit(1)


_HERE: Final = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
# The address of a picture in a message could send data to another server, and code can write messages.
_POLICY: Final = b"frame-ancestors 'none'; img-src 'self' data: blob:; media-src 'self' data: blob:"
_HEADERS: Final = [(b"x-frame-options", b"DENY"), (b"content-security-policy", _POLICY)]
_REFUSAL: Final = b"This is not a page of this server.\n"
_MORE: Final = Path(__file__).with_name("pages.html").read_bytes()
"""CSS for each page, so that wide code folds and does not hide the buttons."""
_LENGTH: Final = b"content-length"
# A cached page would keep the old CSS after an upgrade of CodeRoom.
_NO_STORE: Final = (b"cache-control", b"no-store")


def _guarded(application: Application) -> Application:
    """Refuse requests from pages of other servers, and show neither in their frames nor their pictures; add the CSS.

    A browser lets any page open a websocket to this machine and send some requests, but it says whose page it is. A
    page whose host name was changed to point to this machine asks for that name. Links to the pages here are allowed.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        is_page = False

        async def answer(message: Message) -> None:
            nonlocal is_page
            if message["type"] == "http.response.start":
                headers = [(name.lower(), value) for name, value in message.get("headers", ())]
                is_page = message["status"] == 200 and dict(headers).get(b"content-type", b"").startswith(b"text/html")
                if is_page:
                    longer = b"%d" % (int(dict(headers).get(_LENGTH, b"0")) + len(_MORE))
                    headers = [(name, longer if name == _LENGTH else value) for name, value in headers] + [_NO_STORE]
                message["headers"] = headers + _HEADERS
            elif is_page and not message.get("more_body", False):
                message["body"] = message.get("body", b"") + _MORE
            await send(message)

        if scope["type"] == "lifespan" or _is_allowed(scope):
            await application(scope, receive, answer)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSAL})

    return guard


def _is_allowed(scope: Scope) -> bool:
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    host = headers.get(b"host", "")
    own = headers.get(b"origin") in (None, f"http://{host}")
    # A picture, a script or a form with method GET has no origin.
    is_page = headers.get(b"sec-fetch-dest") == "document" and headers.get(b"sec-fetch-mode") == "navigate"
    is_link = is_page and scope.get("method") == "GET" and not scope["path"].startswith("/api")
    own = own and (headers.get(b"sec-fetch-site") in (None, "same-origin", "none") or is_link)
    return own and _HERE.fullmatch(host) is not None


# --- Runs ---

_LOOK_SECONDS: Final = 0.2
# Before these, processes and tasks can end by themselves.
_PROCESS_SECONDS: Final = 1.0
_TASK_SECONDS: Final = 3.0
_QUESTION_SECONDS: Final = 170.0
"""Studio's page ends a run after 180 seconds without an answer; an earlier refusal says why."""
_ASKS: Final = "coderoom.agents.HumanApprovedAgent"


_tasks: dict[Any, WeakSet[asyncio.Task[Any]]] = {}
"""The tasks of each run."""


def note_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Create a task, and note its run, unless the task has a context of its own. A task factory for asyncio."""
    task = asyncio.Task(coro, loop=loop, **options)
    run = current_run()
    if run is not None and options.get("context") is None:
        _tasks.setdefault(run, WeakSet()).add(task)
    return task


async def end_runs() -> None:
    """End the tasks that runs have left, and the processes below this one when no run goes on; forever."""
    over: dict[Any, float] = {}
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now, going = time.monotonic(), going_runs()
        over = {run: over.get(run, now) for run in _tasks if run not in going}
        # Not in a thread: no run may start in between.
        if over and not going and now - max(over.values()) >= _PROCESS_SECONDS:
            end_descendants()
        for run, since in over.items():
            if now - since >= _TASK_SECONDS:
                for task in _tasks.pop(run):
                    task.cancel()


def with_messages(team_manager: type[Any]) -> type[Any]:
    """Extend Studio's class that runs teams: show events and errors as messages, and close what a run opens."""

    class TeamManager(team_manager):  # type: ignore[misc]
        """Runs one team."""

        async def _create_team(self, *args: Any, **kwargs: Any) -> Any:
            team = await super()._create_team(*args, **kwargs)
            for close in closers_of(team):
                at_end_of_run(close)
            self.agents += agents_of(team, hidden=True)
            for agent in self.agents:
                agent.on_messages_stream = _noting(agent.name, agent.on_messages_stream, self.failures)
            return team

        async def run_stream(self, task: Any, team_config: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            """Run the team; a failure becomes a message before it is raised."""
            self.failures: list[tuple[str, Exception]] = []
            self.agents: list[Any] = []
            began = False
            messages = StudioMessages(_limit_questions(team_config))
            run = super().run_stream(task, team_config, *args, **kwargs)
            async with closing_what_opens(), storing_interrupted(self.agents), aclosing(run) as items:
                try:
                    async for item in items:
                        began = True
                        self.failures.clear()
                        if hasattr(item, "task_result"):  # The end: the executors still have their changes.
                            for shown in await changes_messages(self.agents):
                                yield shown
                        for shown in messages.show(item):
                            yield shown
                except Exception as error:
                    # The page shows the error of a run that did not begin.
                    if began:
                        yield error_message(*(self.failures or [("team", error)])[0])
                    raise

    return TeamManager


@asynccontextmanager
async def storing_interrupted(agents: list[Any]) -> AsyncGenerator[None, None]:
    """When the run has ended, store the output of code that was stopped: Studio reads nothing more of the stream."""
    try:
        yield
    finally:
        for agent in agents:
            if (event := getattr(agent, "interrupted", None)) is not None:
                await store(run_message(output_of(event)))


def _noting(
    name: str, turn: Callable[..., AsyncGenerator[Any, None]], failures: list[tuple[str, Exception]]
) -> Callable[..., AsyncGenerator[Any, None]]:
    """A turn that notes its error: AutoGen's teams turn it into text, without the name of the agent."""

    async def noted(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(turn(*args, **kwargs)) as items:
            try:
                async for item in items:
                    yield item
            except Exception as error:
                failures.append((name, error))
                raise

    return noted


def _limit_questions(component: Any) -> set[str]:
    """Limit the timeouts of a team's questions; return the agents whose code the page shows only in their questions."""
    found = set()
    for config in _configs(component, _ASKS):
        timeout = config.get("timeout")
        if timeout is None or (isinstance(timeout, int | float) and timeout > _QUESTION_SECONDS):
            config["timeout"] = _QUESTION_SECONDS
    # Studio gives its input function to the agents directly in the team.
    with suppress(KeyError, TypeError, AttributeError):
        for participant in component["config"]["participants"]:
            inner = participant["config"].get("agent", {}).get("config", {})
            if participant["provider"] == _ASKS and not inner.get("approval"):
                found.add(participant["config"].get("name") or inner["name"])
    return found


def _configs(data: Any, provider: str) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        if data.get("provider") == provider and isinstance(data.get("config"), dict):
            yield data["config"]
        data = list(data.values())
    if isinstance(data, list):
        for each in data:
            yield from _configs(each, provider)


if __name__ == "__main__":
    serve(sys.argv[1], *map(int, sys.argv[2:]))
    os._exit(0)  # The interpreter's own exit may take seconds.

"""One start of AutoGen Studio, from its environment to its end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from rich.console import Console

from coderoom._util.text import visible
from coderoom.configs import make_gallery
from coderoom.errors import MissingDependencyError, StudioError
from coderoom.studio.contents import Contents, forget_if_new
from coderoom.studio.environment import Tell, prepare_environment
from coderoom.studio.folder import default_folder, use_folder
from coderoom.studio.rest import RefusedError, Rest
from coderoom.studio.server import StudioServer, listen, run_server, server_environment

__all__ = ["RunningStudio", "run_studio"]

_WINDOWS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_NO_KEY: Final = (
    "OPENAI_API_KEY is not set, and teams with OpenAI's models need it; --model gives all of them another model."
)
_NEEDS_KEY: Final = "autogen_ext.models.openai.OpenAIChatCompletionClient"


@dataclass(frozen=True)
class RunningStudio:
    """A Studio that answers.

    Attributes:
        url: Where.
        appdir: The folder that keeps its teams, sessions and runs.
        log: The file that its server writes to.
        left: What an earlier start had put there and this one has left alone, each with the reason.
        lacks_key: Whether teams have OpenAI's models, and there is no key for them.
    """

    url: str
    appdir: Path
    log: Path
    left: Sequence[str] = ()
    lacks_key: bool = False

    def to_json(self) -> dict[str, Any]:
        """What programs want to know. Whoever ends the process `pid` ends everything."""
        places = {"url": self.url, "appdir": str(self.appdir), "log": str(self.log)}
        return {**places, "pid": os.getpid(), "left": list(self.left)}

    def open(self) -> None:
        """Open it in the browser, if there is one with a window."""
        # One without a window would take the terminal.
        if sys.platform != "linux" or any(os.environ.get(name) for name in _WINDOWS):
            threading.Thread(target=_open, args=(self.url,), daemon=True).start()

    def show(self, console: Console) -> None:
        """Tell a person."""
        lines = [
            f"AutoGen Studio with CodeRoom's teams: {self.url}",
            f"It keeps what you make there in {self.appdir}; its log is {self.log}",
            *(f"Left alone: {what}" for what in self.left),
            *((_NO_KEY,) if self.lacks_key else ()),
            "It has no authentication: whoever can reach this port on this machine can run code here as you.",
            "Ctrl-C ends it.",
        ]
        for line in lines:
            console.print(visible(line), markup=False, highlight=False, soft_wrap=True)


def run_studio(
    teams: Sequence[str | Path],
    console: Console,
    *,
    appdir: Path | None = None,
    port: int = 8081,
    model: str | None = None,
    trust: Sequence[str] = (),
    begin: Callable[[RunningStudio], None],
) -> NoReturn:
    """Start AutoGen Studio with CodeRoom's teams and serve it until a signal comes.

    Args:
        teams: More teams, as for `load_team`.
        console: For what a person wants to know.
        appdir: The folder for what Studio keeps; `None`: one below the user's data folder.
        port: The port of this machine; 0 is any that is free.
        model: A text that `make_model` understands, for a model that takes the place of the teams' own ones.
        trust: Namespaces whose components may be loaded, besides `autogen_*` and `coderoom`.
        begin: Is called when it answers.

    Raises:
        KeyboardInterrupt: Ctrl-C, SIGTERM or the terminal's end came; everything has ended.
        ConfigError: A team has mistakes.
        RequestError: A team, the port or the folder is not to be had.
        MissingDependencyError: Studio cannot be installed, or what is trusted does not work in its environment.
        StudioError: The server did not come up, or ended by itself.
    """
    if os.name != "posix":
        raise MissingDependencyError("coderoom studio runs on Linux and macOS only.")
    gallery = make_gallery(teams, model=model, trust=trust)
    folder = (appdir or default_folder()).absolute()
    with _signals_interrupt(), use_folder(folder) as lock, listen(port) as listening:
        log = folder / "studio.log"
        forget_if_new(folder)
        with contextlib.ExitStack() as stack:
            with _telling(console) as tell:
                interpreter = prepare_environment(tell)
                tell("Starting AutoGen Studio")
                environment = server_environment(interpreter, trust, gallery)
                server = stack.enter_context(run_server(interpreter, folder, log, listening, lock, environment))
                server.wait_until_it_answers()
                left = _fill(server, folder, gallery)
            begin(RunningStudio(server.url, folder, log, left, _lacks_key(gallery)))
            server.wait_for_its_end()


def _lacks_key(gallery: dict[str, Any]) -> bool:
    providers = [model["provider"] for model in gallery["components"]["models"]]
    return _NEEDS_KEY in providers and not any(os.environ.get(name) for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"))


def _open(url: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url)


def _fill(server: StudioServer, folder: Path, gallery: dict[str, Any]) -> list[str]:
    try:
        return Contents(Rest(server.port), folder).put(gallery)
    except (OSError, RefusedError) as error:
        # Of a database that it cannot read, Studio says so in its log only.
        raise StudioError(
            f"CodeRoom's teams cannot be put into AutoGen Studio: {error}. If the database in {str(folder)!r} is "
            f"broken, or of another Studio, name another folder with --appdir.{server.last_words()}"
        ) from error


@contextlib.contextmanager
def _telling(console: Console) -> Iterator[Tell]:
    with console.status("") as status:

        def tell(words: str, detail: str = "") -> None:
            if console.is_terminal:
                status.update(f"{words}{detail}")
            elif not detail:
                console.print(words, soft_wrap=True)

        yield tell


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """While this lasts, the first of the signals that end programs is a `KeyboardInterrupt`, and others are nothing."""
    # Who runs it by `nohup`, or in the background of a script, has some of them ignored.
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]

    def interrupt(number: int, frame: Any) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

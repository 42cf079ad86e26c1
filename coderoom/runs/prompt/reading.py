"""Reads tasks from a person at a terminal, also while the team works. Used by `coderoom chat`.

The prompt stays at the bottom, below what changes while the team works. Everything else is shown above it, whoever
writes it. While a question is asked at the same terminal, the prompt is gone, and nothing that was typed for it can be
an answer.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import termios
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final, TextIO, cast

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import ANSI, merge_formatted_text
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import Dimension
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import Console, RenderableType
from rich.text import Text

from coderoom._util.text import counted, visible
from coderoom.approval.human import discard_typed_ahead
from coderoom.runs.prompt.command import Command
from coderoom.runs.prompt.completing import candidates
from coderoom.runs.prompt.history import TaskHistory
from coderoom.runs.view import Region

MARK: Final = "> "
_HOW_TO_LEAVE: Final = "Ctrl-C again, Ctrl-D or exit ends the chat."
_HOW_TO_FORCE: Final = "The task has not ended yet. Ctrl-\\ ends the chat at once."
_STILL_WORKS: Final = "The team works. Ctrl-C ends the task."
_GIVEN: Final = "for the team's next step"
_QUESTION_WAITS: Final = "A question waits until you stop typing."
_QUIET_SECONDS: Final = 1.0
"""How long a question waits after the last key."""
_DRAWN_AT_ONCE: Final = 5_000
_POLL_SECONDS: Final = 0.02
_FRAME_SECONDS: Final = 0.1
_MENU_ROWS: Final = 8
_SHOWN_LINES: Final = 10
_LONGEST_LINE: Final = 500
_ENDS: Final = (signal.SIGHUP, signal.SIGTERM)


class Prompt:
    """Reads tasks at a terminal. It is made, started and used in one event loop, whose thread is the main one.

    Args:
        console: Where everything else is shown.
        commands: The commands, for completion.
        history: The file with the tasks of earlier chats; `None`: there are none, and those of this one are not kept.
    """

    how: str = (
        "Enter sends a task, Alt-Enter begins a line, Tab completes, /help lists the commands. What is typed while the "
        "team works is given to it at its next step; /later keeps it for afterwards. Ctrl-C ends a task; Ctrl-D or "
        "exit the chat."
    )
    looks: Callable[[str], Awaitable[None] | None] | None = None
    gives: Callable[[str], Awaitable[None] | None] | None = None

    def __init__(self, console: Console, *, commands: Mapping[str, Command], history: Path | None = None) -> None:
        self._console = console
        self._commands = commands
        self._queue: deque[str] = deque()
        self._given: list[str] = []  # What of it the team is to get.
        self._changed = asyncio.Event()
        self._is_starting = True
        self._is_reading = self._is_leaving = self._has_ended = False
        self._content: Callable[[], RenderableType] | None = None
        self._kept = Document()
        self._last_key = 0.0
        self._editor: asyncio.Task[None] | None = None
        self._begun: set[asyncio.Future[None]] = set()  # Kept, so that they are not collected.
        self._questions: set[object] = set()
        self._is_aside = True
        self._may_show = asyncio.Event()
        self._unwritten: list[tuple[TextIO, str]] = []
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._session = self._make_session(history)

    def start(self) -> None:
        """Show the prompt."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._mode = termios.tcgetattr(sys.stdin.fileno())
        self._catch_ends()
        self._session.output.write_raw("\r")  # What was typed before may stand there; it is in the line soon.
        self._session.output.erase_end_of_line()
        self._session.output.flush()
        self._open.enter_context(redirect_stdout(cast(TextIO, _Above(sys.stdout, self))))
        self._open.enter_context(redirect_stderr(cast(TextIO, _Above(sys.stderr, self))))
        self._may_show.set()
        self._tasks = [asyncio.create_task(self._show()), asyncio.create_task(self._tick())]

    async def close(self) -> None:
        """Remove the prompt."""
        if self._tasks:
            await self._step_aside(self, quiet=0)
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            for number in _ENDS:
                self._loop.remove_signal_handler(number)
            self._open.close()

    async def read(self) -> str | None:
        """Wait for a task; `None`: the person has ended the chat, or the terminal is gone."""
        self._catch_ends()
        self._is_reading, self._is_starting, self._is_leaving = True, False, False
        self._given.clear()
        try:
            while not self._queue and not self._has_ended:
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._is_reading = self._is_leaving = False
        if self._tasks[0].done():
            self._tasks[0].result()  # Raises what has gone wrong.
        if self._has_ended:
            return None
        task = self._queue.popleft()
        self.redraw()
        self._console.print(Text(f"\n{MARK}{_shortened(task)}", style="bold"))
        return task

    def _enter(self, task: str) -> None:
        is_working = not (self._is_reading or self._is_starting)
        if is_working and self._begin(self.looks, task):
            return
        self._queue.append(task)
        if self._begin(self.gives, task):
            self._given.append(task)
        self._changed.set()
        if not self._is_reading:  # Else it is taken at once.
            self.redraw()

    def _begin(self, does: Callable[[str], Awaitable[None] | None] | None, line: str) -> bool:
        begun = None if does is None else does(line)
        if begun is not None:
            self._begun.add(future := asyncio.ensure_future(begun))
            future.add_done_callback(self._begun.discard)
        return begun is not None

    def got(self, words: str) -> None:
        """Do not run what was given to the team as a task."""
        if words in self._given:
            self._given.remove(words)
            self._queue.remove(words)
            self.redraw()

    def put(self, words: Sequence[str]) -> None:
        """Have words that the team has not got wait as tasks, if they do not wait already."""
        self._queue += [each for each in words if each not in self._queue]

    def take_back(self) -> None:
        """Put the tasks that wait into the line again, to be changed, sent or cleared."""
        if self._queue:
            text = "\n".join([*self._queue, *filter(None, [self._document.text])])
            self._queue.clear()
            self._kept = self._session.default_buffer.document = Document(text)
            self.redraw()

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Leave the terminal to a question, once nobody types. What was typed so far is there again afterwards."""
        question = object()
        try:  # It may be asked in another event loop.
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._step_aside(question), self._loop))
            yield
        finally:
            self._loop.call_soon_threadsafe(self._come_back, question)

    def region(self, content: Callable[[], RenderableType]) -> Region:
        """A region above the line for what changes while the team works."""
        return _Region(self, content)

    def show(self, content: Callable[[], RenderableType] | None) -> None:
        """Set what tells the content of the region above the line."""
        self._content = content
        self.redraw()

    def redraw(self) -> None:
        """Show the region above the line, what waits, and the line."""
        size = self._session.output.get_size()
        rows = [f"{_GIVEN if task in self._given else 'queued'}: {_shortened(task, 1)}" for task in self._queue]
        if self._questions:
            rows.append(_QUESTION_WAITS)
        parts = [Text(row, style="dim", no_wrap=True, overflow="ellipsis") for row in rows]
        content = [] if self._content is None else [self._content()]
        with io.StringIO() as file:
            system: Any = self._console.color_system
            console = Console(file=file, force_terminal=True, color_system=system, width=size.columns)
            console.print(*content, *parts, sep="\n", end="")
            lines = file.getvalue().splitlines()[-max(1, size.rows // 2) :]
        above = ANSI("\n".join(["", *lines, ""]))
        self._session.message = merge_formatted_text([above, [("bold", MARK)]])
        self._session.app.invalidate()

    def write(self, stream: TextIO, text: str) -> None:
        """Write above the line. Any thread may do so."""
        with self._lock:
            self._unwritten.append((stream, text))
        if threading.get_ident() == self._thread or not self._session.app.is_running:
            self._write()
        else:
            self._loop.call_soon_threadsafe(self._write)

    def _write(self) -> None:
        app = self._session.app
        with self._lock, suppress(OSError):  # The terminal may be gone.
            # An editor may have the terminal, or more of the line may follow.
            if not self._unwritten or (app.is_running and (self._is_editing or self._unwritten[-1][1][-1:] != "\n")):
                return
            pieces, self._unwritten = self._unwritten, []
            if app.is_running:
                app.renderer.erase()
            for stream, text in pieces:
                stream.write(text)
                stream.flush()
        app.invalidate()

    @property
    def _is_editing(self) -> bool:
        return self._editor is not None and not self._editor.done()

    @property
    def _document(self) -> Document:
        return self._kept if self._is_aside else self._session.default_buffer.document

    async def _show(self) -> None:
        try:
            while True:
                await self._may_show.wait()
                self._is_aside = False
                self.redraw()
                try:
                    await self._session.prompt_async(
                        default=self._kept, handle_sigint=False, set_exception_handler=False
                    )
                except _AsideError:
                    pass
                finally:
                    self._is_aside = True
        except EOFError:  # The terminal is gone.
            pass
        finally:
            self._end()

    async def _tick(self) -> None:
        while True:
            # A long text takes long to be drawn.
            await asyncio.sleep(_FRAME_SECONDS * (1 + len(self._document.text) // _DRAWN_AT_ONCE))
            if self._content is not None and not self._is_aside:
                self.redraw()

    async def _step_aside(self, question: object, quiet: float = _QUIET_SECONDS) -> None:
        self._questions.add(question)
        self._may_show.clear()
        app = self._session.app
        while not self._is_aside:
            if app.is_running and not app.is_done and not self._is_editing:
                if monotonic() - self._last_key < quiet:
                    self.redraw()
                else:
                    self._kept = self._session.default_buffer.document
                    app.exit(exception=_AsideError())
            await asyncio.sleep(_POLL_SECONDS)
        self._write()
        discard_typed_ahead(sys.stdin.fileno())

    def _come_back(self, question: object) -> None:
        self._questions.discard(question)
        if not self._questions:
            self._may_show.set()

    def _end(self) -> None:
        self._has_ended = True
        self._changed.set()

    def _catch_ends(self) -> None:  # Again and again, since what runs a task has its own handlers.
        for number in _ENDS:
            self._loop.add_signal_handler(number, self._end)

    def _typed(self, _: object) -> None:
        self._last_key = monotonic()

    def _edited(self, _: object) -> None:
        self._is_leaving = False

    def _make_session(self, history: Path | None) -> PromptSession[str]:
        stdout = sys.stdout

        def size() -> Size:
            with suppress(OSError):
                columns, rows = os.get_terminal_size(stdout.fileno())
                if columns and rows:
                    return Size(rows, columns)
            return Size(24, 80)

        session: PromptSession[str] = PromptSession(
            multiline=True,
            prompt_continuation=" " * len(MARK),
            history=TaskHistory(history),
            completer=_Completer(self._commands),
            complete_while_typing=False,
            key_bindings=self._bindings(),
            enable_suspend=True,
            erase_when_done=True,
            tempfile_suffix=".md",
            # It does not ask the terminal where the cursor is: the reply could come when a question is asked.
            output=Vt100_Output(stdout, size, term=os.environ.get("TERM"), enable_cpr=False),
        )
        session.layout.current_window.height = self._height
        session.app.key_processor.before_key_press += self._typed
        session.default_buffer.on_text_changed += self._edited
        return session

    def _height(self) -> Dimension:
        """The line takes a third of the terminal at most, or what a menu needs, so that what the team does is seen."""
        is_completing = self._session.default_buffer.complete_state is not None
        most = max(3, self._session.output.get_size().rows // 3)
        return Dimension(min=_MENU_ROWS, max=max(_MENU_ROWS, most)) if is_completing else Dimension(max=most)

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        in_line = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=in_line)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
                buffer.complete_state = None
            elif buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif task := buffer.text.strip():
                buffer.reset(append_to_history=True)
                self._enter(task)

        @keys.add("escape", "enter", filter=in_line)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=in_line)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text and (self._is_reading or self._is_starting):
                event.current_buffer.reset()
            elif not self._is_reading:
                if self._is_leaving:
                    self._console.print(_HOW_TO_FORCE, style="dim")
                self._is_leaving = True
                os.kill(os.getpid(), signal.SIGINT)
            elif self._is_leaving:
                self._end()
            else:
                self._is_leaving = True
                self._console.print(_HOW_TO_LEAVE, style="dim")

        @keys.add("c-\\")
        def _(event: KeyPressEvent) -> None:
            event.app.renderer.erase()
            event.app.output.disable_bracketed_paste()
            event.app.output.show_cursor()
            event.app.output.flush()
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._mode)
            os.kill(os.getpid(), signal.SIGQUIT)

        @keys.add("c-d", filter=in_line & Condition(lambda: not self._session.default_buffer.text))
        def _(event: KeyPressEvent) -> None:
            if self._is_reading:
                self._end()
            else:
                self._console.print(_STILL_WORKS, style="dim")

        @keys.add("c-x", "c-e", filter=in_line)
        def _(event: KeyPressEvent) -> None:
            self._editor = event.current_buffer.open_in_editor()
            self._editor.add_done_callback(lambda _: self._write())

        return keys


class _AsideError(Exception):
    """The line is gone until a question is answered."""


class _Region:
    """What RunView draws, in the place of Rich's `Live`."""

    def __init__(self, prompt: Prompt, content: Callable[[], RenderableType]) -> None:
        self._prompt, self._content = prompt, content

    def start(self) -> None:
        self._prompt.show(self._content)

    def stop(self) -> None:
        self._prompt.show(None)

    def refresh(self) -> None:
        self._prompt.redraw()


class _Above:
    """Standard output or error, above the line."""

    def __init__(self, stream: TextIO, prompt: Prompt) -> None:
        self._stream, self._prompt = stream, prompt

    def write(self, text: str) -> int:
        self._prompt.write(self._stream, text)
        return len(text)

    def flush(self) -> None:
        """Each line is written at once."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Completer(Completer):
    def __init__(self, commands: Mapping[str, Command]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for each in candidates(document.text_before_cursor, self._commands):
            yield Completion(each.text, -each.replaced, display_meta=each.help)


def _shortened(task: str, most: int = _SHOWN_LINES) -> str:
    whole = visible(task).splitlines()
    first, *lines = [line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…" for line in whole]
    if len(lines) >= most:
        lines = [*lines[: most - 1], f"… and {counted(len(lines) - most + 1, 'more line')}"]
    return f"\n{' ' * len(MARK)}".join([first, *lines])

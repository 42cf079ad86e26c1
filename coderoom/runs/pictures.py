"""Shows and opens the pictures that code has made, for the views of `run`, `chat` and `exec`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coderoom._util.files import read_inside
from coderoom._util.pictures import HEAD_BYTES, inline, picture_type, protocol_of
from coderoom._util.terminal import PlainConsole
from coderoom._util.text import visible
from coderoom.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_SUFFIXES: Final = {
    "image/png": (".png",),
    "image/jpeg": (".jpg", ".jpeg"),
    "image/gif": (".gif",),
    "image/webp": (".webp",),
}
_LARGEST: Final = 8 << 20
_MOST: Final = 5


def show_pictures(console: Console | PlainConsole, files: Sequence[Path]) -> None:
    """Show the first few pictures among files, in a terminal that can."""
    if console.quiet or not console.file.isatty():
        return
    for _, data in _pictures(files):
        if (protocol := protocol_of(console.file)) and (text := inline(data, protocol, console.file)):
            console.file.write(f"{text}\n")
            console.file.flush()


def _pictures(files: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
    """The first few that are pictures by their name and by their content."""
    found = 0
    for path in files:
        kinds = [kind for kind, suffixes in _SUFFIXES.items() if path.suffix.lower() in suffixes]
        with suppress(OSError, RequestError):  # It is gone, a link, or too large.
            if kinds and picture_type((data := read_inside(path.parent, path.name, _LARGEST))[:HEAD_BYTES]) in kinds:
                yield path, data
                found += 1
        if found == _MOST:
            return


def linked(files: Sequence[Path], shown: Callable[[Path], str], gap: str) -> Text:
    """The names of files, each of which opens it where the terminal has links."""
    from rich.style import Style
    from rich.text import Text

    links = [Text(visible(shown(path)), Style(link=path.absolute().as_uri())) for path in files]
    return Text(gap).join(links)


def opener() -> list[str]:
    """The command that opens a file on the desktop.

    Raises:
        RequestError: There is none.
    """
    if sys.platform == "darwin":
        return ["open"]
    if shutil.which("wslview"):
        return ["wslview"]
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise RequestError("--open: there is no desktop here (neither DISPLAY nor WAYLAND_DISPLAY is set).")
    if not shutil.which("xdg-open"):
        raise RequestError("--open: there is no `xdg-open` here (apt-get install xdg-utils).")
    return ["xdg-open"]


def open_pictures(files: Sequence[Path], command: Sequence[str]) -> None:
    """Open the first few pictures among files with what `opener` has found, and do not wait for it."""
    for path, _ in _pictures(files):
        words = ["/bin/sh", "-c", '"$@" &', "sh", *command, str(path.absolute())]
        null = subprocess.DEVNULL
        subprocess.run(words, stdin=null, stdout=null, stderr=null, start_new_session=True, check=False)

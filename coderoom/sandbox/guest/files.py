"""The files that a cell leaves in the workspace, and the pictures of values that become files there.

`Workspace` is used by the interpreters of both engines, `Pictures` by the runner.
"""

from __future__ import annotations

import binascii
import os
import stat
import sys
from functools import partial
from typing import Any, Callable, Tuple

from .imports import when_imported

_MOST_FILES = 5000
_MOST_ARTIFACTS = 100
_MOST_BYTES = 8 * 1024 * 1024
_HIDDEN = (".", "__pycache__")

_Mark = Tuple[int, int, int]

PYPLOT = "matplotlib.pyplot"
_MOST = 20
SAVED = "_saved_by_the_code"
# What is kept of a value is the first that it has of these types.
_SUFFIXES = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/svg+xml": "svg",
    "text/html": "html",
    "text/markdown": "md",
}
# The methods that notebooks use, and what they give.
_METHODS = (
    ("_repr_mimebundle_", ""),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
)


class Workspace:
    """Compares the files of a folder before and after a cell.

    `bring` says whether to return the files' content too, because the host cannot read the folder. `left_out` is how
    many more files the last `changes` has found.
    """

    def __init__(self, folder: str, bring: bool) -> None:
        self.folder = folder
        self.left_out = 0
        self.bring = bring
        self._before: dict[str, _Mark] = {}

    def remember(self) -> None:
        """Record the current files."""
        self._before = self._look()

    def changes(self) -> tuple[list[dict[str, Any]], list[bytes]]:
        """The files that are new or changed since `remember`: the first hundred by name, without hidden ones.

        That is a description of each, and the contents of those that have a `length`, in the same order.
        """
        found: list[dict[str, Any]] = []
        contents: list[bytes] = []
        room = _MOST_BYTES
        self.left_out = 0
        for name, mark in sorted(self._look().items()):
            if self._before.get(name) == mark:
                continue
            if len(found) == _MOST_ARTIFACTS:
                self.left_out += 1
                continue
            artifact: dict[str, Any] = {"name": name, "size": mark[1]}
            if self.bring and mark[1] <= room:
                content = self._read(name, room)
                room -= len(content)
                artifact["length"] = len(content)
                contents.append(content)
            found.append(artifact)
        return found, contents

    def _look(self) -> dict[str, _Mark]:
        marks: dict[str, _Mark] = {}
        try:
            folders = [""] if os.listdir(self.folder) else []  # Mostly it is empty, and this is the fastest look.
        except OSError:
            return marks
        seen = 0
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(f"{self.folder}/{folder}"))
            except OSError:
                continue
            for entry in entries:
                seen += 1
                if seen > _MOST_FILES:
                    return marks
                if entry.name.startswith(_HIDDEN):
                    continue
                name = folder + entry.name
                try:
                    facts = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(facts.st_mode):
                    folders.append(name + "/")
                elif stat.S_ISREG(facts.st_mode):
                    marks[name] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        return marks

    def _read(self, name: str, room: int) -> bytes:
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                return file.read(room)
        except OSError:
            return b""


class Pictures:
    """Saves the picture or HTML of a value, and open Matplotlib figures, into the folder that `folder` returns.

    `tell` gets the name of each file that is made; `to_text` makes the text of a value. Matplotlib is never imported
    here.
    """

    def __init__(self, folder: Callable[[], str], tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._tell = tell
        self.to_text: Callable[[Any], str] = repr
        os.environ.setdefault("MPLBACKEND", "agg")  # No screen; also for programs that the code starts.
        when_imported(PYPLOT, self._adapt)

    def display(self, *values: Any, raw: bool = False, **_: Any) -> None:
        """Show values in the middle of a cell, as notebooks do: their texts, and their pictures as files.

        With `raw`, a value is a dict with what is shown, by media types.
        """
        for value in values:
            text = value.get("text/plain", "") if raw else self.to_text(value)
            if text:
                print(text)
            if is_figure(value):
                setattr(value, SAVED, False)
                self._save_figure(value)
                # One that is open is not saved once more at the end of the cell.
                pyplot: Any = sys.modules.get(PYPLOT)
                is_open = pyplot is not None and pyplot.fignum_exists(getattr(value, "number", None))
                setattr(value, SAVED, is_open)
            elif value is not None:
                self._save_value(value, raw)

    def save(self, value: Any = None) -> None:
        """Save a value that is not data, and the open figures that the code has not saved; close all figures."""
        pyplot: Any = sys.modules.get(PYPLOT)
        figures = [] if pyplot is None else [pyplot.figure(number) for number in pyplot.get_fignums()[:_MOST]]
        if is_figure(value):
            figures += [] if value in figures else [value]
        elif value is not None:
            self._save_value(value)
        for figure in figures:
            self._save_figure(figure)
            setattr(figure, SAVED, False)  # Code may change it and show it again.
        if pyplot is not None:
            pyplot.close("all")

    def _save_figure(self, figure: Any) -> None:
        if not getattr(figure, SAVED, False):
            try:
                self._keep("figure", "png", figure.savefig)
            except Exception as error:
                _complain("A figure", error)

    def _save_value(self, value: Any, raw: bool = False) -> None:
        for name, media_type in (("display", ""),) if raw else _METHODS:
            try:
                # Some classes have a property that returns the method.
                method = getattr(value, name, None) if hasattr(type(value), name) else None
                found = value if raw else method() if callable(method) else None
                found = found[0] if type(found) is tuple and found else found  # With metadata.
                if isinstance(found, dict) and not media_type:
                    media_type = next((each for each in _SUFFIXES if found.get(each)), "")
                    found = found.get(media_type)
                if type(found) is str and media_type:
                    found = found.encode() if media_type[-3:] not in ("png", "peg") else binascii.a2b_base64(found)
                if type(found) is bytes and media_type:
                    if len(found) > _MOST_BYTES:
                        raise ValueError("it has %d bytes, and at most %d are saved" % (len(found), _MOST_BYTES))
                    self._keep("value", _SUFFIXES[media_type], partial(_write, found))
                    return
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                _complain("The result of %s" % name, error)

    def _keep(self, name: str, suffix: str, write: Callable[[str], Any]) -> None:
        path = _free_name(self._folder(), name, suffix)
        write(path)
        self._tell(os.path.basename(path))

    def _adapt(self, pyplot: Any) -> None:
        """Make `show` save the figures, and mark figures that the code saves."""
        save = pyplot.Figure.savefig

        def savefig(figure: Any, *args: Any, **kwargs: Any) -> Any:
            setattr(figure, SAVED, True)
            return save(figure, *args, **kwargs)

        def show(*_: Any, **__: Any) -> None:
            self.save()

        savefig.__doc__ = save.__doc__
        show.__doc__ = "Save the open figures as files in the workspace, since there is no screen."
        pyplot.Figure.savefig = savefig
        pyplot.show = show


def is_figure(value: Any) -> bool:
    """Whether a value is a figure of Matplotlib."""
    kind = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def _free_name(folder: str, name: str, suffix: str) -> str:
    number = 1
    while os.path.lexists(os.path.join(folder, "%s-%d.%s" % (name, number, suffix))):
        number += 1
    return os.path.join(folder, "%s-%d.%s" % (name, number, suffix))


def _write(data: bytes, path: str) -> None:
    with open(path, "xb") as file:
        file.write(data)


def _complain(what: str, error: BaseException) -> None:
    try:
        print("[%s could not be saved: %s: %s]" % (what, type(error).__name__, error), file=sys.stderr)
    except Exception:  # The code may have replaced `sys.stderr`, and made the exception.
        pass

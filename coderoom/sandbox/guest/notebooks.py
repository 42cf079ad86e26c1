"""What notebooks use of IPython and Jupyter; set up by the runner."""

from __future__ import annotations

import builtins
import importlib.machinery
import linecache
import re
import sys
from typing import Any, Callable

from .imports import when_imported

_SHELL = "IPython.core.interactiveshell"
_PACKAGES = ("IPython", "IPython.core")
_DISPLAYS = ("IPython.display", "IPython.core.display")
# What shows its data as text, and what does not.
_TEXTS = ("Code", "JSON", "Latex", "Markdown", "Math", "Pretty")
_OTHERS = ("Audio", "FileLink", "FileLinks", "HTML", "IFrame", "Javascript", "Video", "YouTubeVideo")


def install(display: Callable[..., None]) -> None:
    """Make `display` and `get_ipython` builtins and `IPython.display` a module, and let `inspect` find classes."""

    def display_with_handle(*values: Any, display_id: Any = None, **options: Any) -> Any:
        """Show values in the middle of a cell, as notebooks do: their texts, and their pictures as files."""
        display(*values, **options)
        return None if display_id is None else _Handle(display, display_id)

    shown = {
        "display": display_with_handle,
        "update_display": lambda value, **options: display(value),
        "publish_display_data": lambda data, *_, **__: display(data, raw=True),
        "clear_output": lambda wait=False: None,  # What is printed stays.
    }
    builtins.display = display_with_handle  # type: ignore[attr-defined]
    builtins.get_ipython = lambda: None  # type: ignore[attr-defined]  # As outside of a notebook.
    sys.meta_path.append(_StandIn(shown))
    when_imported("IPython.core.display_functions", lambda module: module.__dict__.update(shown))
    when_imported("inspect", _find_classes)
    # They look for a browser, and for widgets.
    when_imported("plotly.basedatatypes", lambda module: _show_figures(module, display))
    when_imported("tqdm.notebook", _show_progress)


def shows_all() -> bool:
    """Whether each expression of a cell is shown, since the code has set `InteractiveShell.ast_node_interactivity`."""
    shell = getattr(sys.modules.get(_SHELL), "InteractiveShell", None)
    return bool(getattr(shell, "ast_node_interactivity", None) == "all")


def show(value: Any) -> None:
    """Show the value of an expression."""
    if value is not None:
        builtins.display(value)  # type: ignore[attr-defined]


class _StandIn:
    """Finds what shows values, if IPython is not installed."""

    def __init__(self, shown: dict[str, Any]) -> None:
        self._shown = shown

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in (*_PACKAGES, *_DISPLAYS, _SHELL):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name in _PACKAGES)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        """Make an ordinary module."""

    def exec_module(self, module: Any) -> None:
        """Fill it."""
        if module.__name__ in _PACKAGES:
            module.get_ipython = lambda: None  # As outside of a notebook.
            module.display = self._shown["display"]
            return
        if module.__name__ == _SHELL:
            module.InteractiveShell = type("InteractiveShell", (), {"ast_node_interactivity": "last_expr"})
            return
        module.__dict__.update(self._shown)
        module.Image, module.SVG, module.DisplayHandle = Image, SVG, _Handle
        for name in _TEXTS:
            setattr(module, name, type(name, (_Shown,), {"__repr__": _as_text}))
        for name in _OTHERS:
            setattr(module, name, type(name, (_Shown,), {}))
        module.HTML._repr_html_ = module.Markdown._repr_markdown_ = lambda shown: shown.data


class _Handle:
    def __init__(self, display: Callable[..., None], display_id: Any) -> None:
        self.display_id = display_id
        self.display = self.update = display


class _Shown:
    def __init__(self, data: Any = None, *_: Any, url: Any = None, filename: Any = None, **__: Any) -> None:
        if data is None and filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = url if data is None else data

    def __repr__(self) -> str:
        return f"<IPython.core.display.{type(self).__name__} object>"


def _as_text(shown: _Shown) -> str:
    return shown.data if isinstance(shown.data, str) else _Shown.__repr__(shown)


class Image(_Shown):
    """A picture as bytes, or the name of its file."""

    def __init__(self, data: Any = None, *args: Any, **kwargs: Any) -> None:
        if isinstance(data, str) and "://" not in data:
            data, kwargs["filename"] = None, data
        super().__init__(data, *args, **kwargs)

    def _repr_png_(self) -> Any:
        return self.data if isinstance(self.data, bytes) and self.data.startswith(b"\x89PNG") else None

    def _repr_jpeg_(self) -> Any:
        return self.data if isinstance(self.data, bytes) and self.data.startswith(b"\xff\xd8") else None


class SVG(_Shown):
    """A drawing."""

    def _repr_svg_(self) -> Any:
        return self.data.decode() if isinstance(self.data, bytes) else self.data


def _show_figures(plotly: Any, display: Callable[..., None]) -> None:
    plotly.BaseFigure.show = lambda figure, *_, **__: display(figure)


def _show_progress(tqdm: Any) -> None:
    std = sys.modules["tqdm.std"]
    tqdm.tqdm = tqdm.tqdm_notebook = std.tqdm
    tqdm.trange = tqdm.tnrange = std.trange


def _find_classes(inspect: Any) -> None:
    """Let `inspect` find the cell of a class: modules have a file, and `__main__` has none."""
    getfile = inspect.getfile

    def getfile_or_cell(object: Any) -> Any:
        try:
            return getfile(object)
        except (TypeError, OSError):
            cell = _cell_of(object) if isinstance(object, type) and object.__module__ == "__main__" else None
            if cell is None:
                raise
            return cell

    getfile_or_cell.__doc__ = getfile.__doc__
    inspect.getfile = getfile_or_cell


def _cell_of(kind: type) -> str | None:
    for value in vars(kind).values():
        filename = getattr(getattr(value, "__code__", None), "co_filename", "")
        if filename.startswith("<cell "):
            return str(filename)
    head = re.compile(r"\s*class\s+%s\b" % re.escape(kind.__name__))
    cells = [name for name in linecache.cache if name.startswith("<cell ")]
    return next((name for name in reversed(cells) if any(map(head.match, linecache.getlines(name)))), None)

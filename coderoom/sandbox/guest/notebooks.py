"""What notebooks use of IPython and Jupyter; set up by the runner."""

from __future__ import annotations

import builtins
import importlib.machinery
import linecache
import re
import sys
from typing import Any, Callable

from .imports import when_imported

_PACKAGES = ("IPython", "IPython.core")
_DISPLAYS = ("IPython.display", "IPython.core.display")
_TEXTS = ("HTML", "JSON", "Javascript", "Latex", "Markdown", "Math", "Pretty")


def install(display: Callable[..., None]) -> None:
    """Make `display` and `get_ipython` builtins and `IPython.display` a module, and let `inspect` find classes."""
    builtins.display = display  # type: ignore[attr-defined]
    builtins.get_ipython = lambda: None  # type: ignore[attr-defined]  # As outside of a notebook.
    sys.meta_path.append(_StandIn(display))
    when_imported("IPython.core.display_functions", lambda module: setattr(module, "display", display))
    when_imported("inspect", _find_classes)


class _StandIn:
    """Finds what shows values, if IPython is not installed."""

    def __init__(self, display: Callable[..., None]) -> None:
        self._display = display

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in (*_PACKAGES, *_DISPLAYS):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name in _PACKAGES)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        """Make an ordinary module."""

    def exec_module(self, module: Any) -> None:
        """Fill it."""
        if module.__name__ in _PACKAGES:
            module.get_ipython = lambda: None  # As outside of a notebook.
            return
        module.display = self._display
        module.clear_output = lambda wait=False: None
        module.Image, module.SVG = Image, SVG
        for name in _TEXTS:
            setattr(module, name, type(name, (_Shown,), {}))
        module.HTML._repr_html_ = lambda shown: shown.data


class _Shown:
    def __init__(self, data: Any = None, url: Any = None, filename: Any = None, **_: Any) -> None:
        if data is None and filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = url if data is None else data

    def __repr__(self) -> str:
        return self.data if isinstance(self.data, str) else f"<{type(self).__name__}>"


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

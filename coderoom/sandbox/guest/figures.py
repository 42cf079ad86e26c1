"""Saves Matplotlib figures that code leaves open or shows as files in the workspace. Used by the runner."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

__all__ = ["Figures"]

_PYPLOT = "matplotlib.pyplot"
_MOST = 20
_SAVED = "_saved_by_the_code"


class Figures:
    """Saves the open figures of a cell. It never imports Matplotlib itself.

    Args:
        folder: Returns the folder for the files.
    """

    def __init__(self, folder: Callable[[], str]) -> None:
        self._folder = folder
        os.environ.setdefault("MPLBACKEND", "agg")  # No screen; also for programs that the code starts.
        pyplot = sys.modules.get(_PYPLOT)
        if pyplot is None:
            sys.meta_path.insert(0, _Finder(self._adapt))
        else:
            self._adapt(pyplot)

    def save(self) -> None:
        """Save the open figures that the code has not saved, and close all."""
        pyplot: Any = sys.modules.get(_PYPLOT)
        if pyplot is None:
            return
        for number in pyplot.get_fignums()[:_MOST]:
            figure = pyplot.figure(number)
            if not getattr(figure, _SAVED, False):
                try:
                    figure.savefig(_free_name(self._folder()))
                except Exception as error:
                    print("[A figure could not be saved: %s: %s]" % (type(error).__name__, error), file=sys.stderr)
        pyplot.close("all")

    def _adapt(self, pyplot: Any) -> None:
        """Make `show` save the figures, and mark figures that the code saves."""
        save = pyplot.Figure.savefig

        def savefig(figure: Any, *args: Any, **kwargs: Any) -> Any:
            setattr(figure, _SAVED, True)
            return save(figure, *args, **kwargs)

        def show(*_: Any, **__: Any) -> None:
            self.save()

        savefig.__doc__ = save.__doc__
        show.__doc__ = "Save the open figures as files in the workspace, since there is no screen."
        pyplot.Figure.savefig = savefig
        pyplot.show = show


def _free_name(folder: str) -> str:
    number = 1
    while os.path.lexists(os.path.join(folder, "figure-%d.png" % number)):
        number += 1
    return os.path.join(folder, "figure-%d.png" % number)


class _Finder:
    """An import hook that calls a function once `pyplot` was imported."""

    def __init__(self, loaded: Callable[[Any], None]) -> None:
        self._loaded = loaded

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _PYPLOT:
            return None
        import importlib.machinery

        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            _call_after_load(spec.loader, self._loaded)
        return spec


def _call_after_load(loader: Any, call: Callable[[Any], None]) -> None:
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        call(module)

    loader.exec_module = exec_module

"""Calls a function with a module once it is imported; used for libraries that the guest adapts to the sandbox."""

from __future__ import annotations

import importlib.machinery
import sys
from typing import Any, Callable


def when_imported(name: str, call: Callable[[Any], None]) -> None:
    """Call a function with a module, now or when the code imports it."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, call))


class _Finder:
    def __init__(self, name: str, call: Callable[[Any], None]) -> None:
        self._name = name
        self._call = call

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self._call(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

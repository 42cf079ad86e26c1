"""Packages whose public names are imported on first use, so that one of them does not cost the import of all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from coderoom._util.distribution import MORE_NEEDED, is_slim
from coderoom.errors import MissingDependencyError


def lazy(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of a package.

    Args:
        package: The package's `__name__`.
        places: The names by their modules, separated by spaces; `new=old` is a name that the module calls `old`.
    """
    names = {}
    for module, found in places.items():
        for name in found.split():
            new, _, old = name.partition("=")
            names[new] = (module, old or new)

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, old = names[name]
        try:
            return getattr(importlib.import_module(module), old)
        except ModuleNotFoundError as error:
            if not is_slim():
                raise
            raise MissingDependencyError(f"{package}.{name} {MORE_NEEDED}") from error

    return get, lambda: sorted(sys.modules[package].__all__)

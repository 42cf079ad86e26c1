"""The functions that a session offers to its code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

from coderoom.errors import RequestError
from coderoom.sandbox.functions.callables import from_callable
from coderoom.sandbox.functions.function import HostFunction

__all__ = ["LateFunctions", "Offer", "Offered", "check_functions", "host_functions"]

Offered = Any
"""What a user can offer: a function, plain or async, a `HostFunction`, or a tool or a workbench of AutoGen."""

LateFunctions = Callable[[], Awaitable[Sequence[HostFunction]]]
"""Functions that must be asked for, such as the tools of a workbench."""

# For each library, the module whose `adapt` handles its objects, once the library is loaded.
_ADAPTERS = {"autogen_core": "coderoom.executors.autogen_tools"}


class Offer:
    """An allow-list of functions of the host.

    Args:
        functions: What to offer.
        argument: The caller's name for `functions`, for messages.

    Raises:
        RequestError: Something cannot be offered, or a name is taken twice or is not valid.
    """

    def __init__(self, functions: Sequence[Offered] = (), argument: str = "functions") -> None:
        if not isinstance(functions, list | tuple):
            raise RequestError(f"{argument}={functions!r} must be a list of functions, tools and workbenches.")
        self._items = [_prepare(item) for item in functions]
        _by_name(item for item in self._items if isinstance(item, HostFunction))

    def __bool__(self) -> bool:
        return bool(self._items)

    async def list(self) -> dict[str, HostFunction]:
        """All functions by their names, those of workbenches included.

        Raises:
            RequestError: Two have the same name, a tool's name is not valid, or a workbench cannot be used.
        """
        found: list[HostFunction] = []
        for item in self._items:
            found += [item] if isinstance(item, HostFunction) else await item()
        return _by_name(found)


async def host_functions(functions: Sequence[Offered]) -> tuple[HostFunction, ...]:
    """The host functions that a session offers for functions, tools and workbenches.

    Args:
        functions: As for `Sandbox.session`, which also accepts what this returns.

    Raises:
        RequestError: Something cannot be offered, or a name is taken twice.
    """
    return tuple((await Offer(functions).list()).values())


def check_functions(functions: Sequence[Offered], argument: str = "functions") -> None:
    """Check functions, tools and workbenches, without asking workbenches for their tools.

    Args:
        functions: As for `Sandbox.session`.
        argument: The caller's name for `functions`, for messages.

    Raises:
        RequestError: Something cannot be offered, or a name is taken twice.
    """
    Offer(functions, argument)


def _prepare(item: Any) -> HostFunction | LateFunctions:
    if isinstance(item, HostFunction):
        return item
    for adapt in _adapters():
        adapted = adapt(item)
        if adapted is not None:
            return adapted
    if callable(item):
        return from_callable(item)
    raise RequestError(f"{item!r} cannot be offered: it is not a function, a tool or a workbench.")


def _adapters() -> Iterator[Callable[[Any], HostFunction | LateFunctions | None]]:
    for library, module in _ADAPTERS.items():
        if library in sys.modules:
            yield importlib.import_module(module).adapt


def _by_name(functions: Iterable[HostFunction]) -> dict[str, HostFunction]:
    found: dict[str, HostFunction] = {}
    for function in functions:
        if function.name in found:
            raise RequestError(f"Two functions are offered under the name {function.name!r}; rename one of them.")
        found[function.name] = function
    return found

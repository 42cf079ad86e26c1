"""What a session offers to its code."""

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
"""Several functions that are known only once somebody has been asked for them."""

# Once a library is loaded, the module whose `adapt` knows its objects. Nothing in this package does.
_ADAPTERS = {"autogen_core": "coderoom.executors.autogen_tools"}


class Offer:
    """An allow-list of functions of the host.

    Args:
        functions: What to offer.
        argument: What the caller calls that.

    Raises:
        RequestError: Something is no function, or its name is taken or is none.
    """

    def __init__(self, functions: Sequence[Offered] = (), argument: str = "functions") -> None:
        if not isinstance(functions, list | tuple):
            raise RequestError(f"{argument}={functions!r} must be a list of functions, tools and workbenches.")
        self._items = [_prepare(item) for item in functions]
        _by_name(item for item in self._items if isinstance(item, HostFunction))

    def __bool__(self) -> bool:
        return bool(self._items)

    async def list(self) -> dict[str, HostFunction]:
        """All functions by their names; workbenches are asked for theirs.

        Raises:
            RequestError: Two have the same name, a tool of a workbench has none that code could call, or a workbench
                cannot be used.
        """
        found: list[HostFunction] = []
        for item in self._items:
            found += [item] if isinstance(item, HostFunction) else await item()
        return _by_name(found)


async def host_functions(functions: Sequence[Offered]) -> tuple[HostFunction, ...]:
    """What a session offers to its code for these functions, tools and workbenches; workbenches are asked for theirs.

    Args:
        functions: What `Sandbox.session` takes. What this returns can be given to it, too.

    Raises:
        RequestError: Something cannot be offered, or a name is taken twice.
    """
    return tuple((await Offer(functions).list()).values())


def check_functions(functions: Sequence[Offered], argument: str = "functions") -> None:
    """Check what is to be offered, as far as that is known before workbenches are asked.

    Args:
        functions: What `Sandbox.session` takes.
        argument: What the caller calls that.

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
    raise RequestError(f"{item!r} cannot be offered: it is no function, no tool and no workbench.")


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

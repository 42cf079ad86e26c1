"""The tools and workbenches of a `CodeActAgent`: checked, dumped, loaded, started and stopped."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from autogen_core import ComponentModel
from autogen_core.tools import BaseTool, FunctionTool, Workbench

from coderoom._util.autogen import is_started
from coderoom.errors import CodeRoomError, RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import FunctionCall, HostFunction, check_functions, host_functions

__all__ = ["Workbenches", "check_tools", "dump_tool", "load_tool"]

# AutoGen cannot dump a `FunctionTool` that was loaded from a config: it no longer finds its source.
_loaded: WeakKeyDictionary[BaseTool[Any, Any], ComponentModel] = WeakKeyDictionary()


def load_tool(model: ComponentModel) -> BaseTool[Any, Any]:
    """Load a tool from its config."""
    tool: BaseTool[Any, Any] = BaseTool.load_component(model)
    _loaded[tool] = model
    return tool


def check_tools(tools: Any) -> list[Any]:
    """Check the tools that a constructor gets.

    Raises:
        RequestError: One cannot be offered to code.
    """
    found: Any = list(tools) if isinstance(tools, Iterable) and not isinstance(tools, str) else tools
    check_functions(found, "tools")
    return list(found)


def dump_tool(tool: BaseTool[Any, Any] | Callable[..., Any]) -> ComponentModel:
    """The config of a tool; a function's config is its source.

    Raises:
        ValueError: The source is not enough to define the function.
    """
    if isinstance(tool, BaseTool):
        return _loaded.get(tool) or tool.dump_component()
    try:
        if not inspect.isfunction(tool):
            raise TypeError("it is not a plain function")
        used = inspect.getclosurevars(tool)
        if used.nonlocals or used.globals:
            raise TypeError(f"it uses names from around it: {', '.join([*used.nonlocals, *used.globals])}")
        model = FunctionTool(tool, description=inspect.getdoc(tool) or "", name=tool.__name__).dump_component()
        with warnings.catch_warnings():  # AutoGen warns when source is loaded; this code is known.
            warnings.simplefilter("ignore")
            FunctionTool.load_component(model)
    except Exception as error:  # Source can be wrong in any way.
        raise ValueError(
            f"Cannot serialize CodeActAgent with the tool {tool!r} ({type(error).__name__}: {error}). A function can "
            "be part of a config if its parameters and its result are annotated and its source is enough to define it; "
            "offer other functions as a FunctionTool with global_imports, or as a tool class."
        ) from error
    return model


class Workbenches:
    """Workbenches whose tools code can call.

    A workbench that was started before is used as it is, and is not stopped here.

    Args:
        workbenches: The workbenches.
    """

    def __init__(self, workbenches: Sequence[Workbench]) -> None:
        self._all = list(workbenches)
        self._started: list[Workbench] = []
        self._owners: dict[str, Workbench] = {}
        self._doubtful: list[Workbench] = []

    async def functions(self) -> list[HostFunction]:
        """All their tools; they are started for that.

        Raises:
            RequestError: One cannot be started or does not answer, or has a tool that cannot be offered.
        """
        found: list[HostFunction] = []
        for workbench in self._all:
            functions = await self._functions_of(workbench)
            self._owners |= {function.name: workbench for function in functions}
            found += functions
        return found

    def note(self, calls: Iterable[FunctionCall]) -> None:
        """Remember failed calls: their workbench may be broken."""
        for call in calls:
            owner = self._owners.get(call.name)
            if owner is not None and call.outcome is not Outcome.OK and owner not in self._doubtful:
                self._doubtful.append(owner)

    async def restart_broken(self) -> None:
        """Restart workbenches that no longer answer. If that fails, calls of their tools continue to fail."""
        doubtful, self._doubtful = self._doubtful, []
        for workbench in doubtful:
            if workbench not in self._started:
                continue
            try:
                await workbench.list_tools()
            except Exception:
                with suppress(Exception):
                    await workbench.stop()
                with suppress(Exception):
                    await workbench.start()

    async def stop(self) -> None:
        """Stop all workbenches that were started here.

        Raises:
            Exception: The first error, after all workbenches were tried.
        """
        started, self._started = self._started, []
        self._doubtful.clear()
        failed: list[Exception] = []
        for workbench in started:
            try:
                await workbench.stop()
            except RuntimeError:  # AutoGen raises it if the workbench is stopped already.
                continue
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    async def reset(self) -> None:
        """Reset the started workbenches."""
        for workbench in self._started:
            await workbench.reset()

    async def save_state(self) -> list[Mapping[str, Any]]:
        """The argument of `load_state`."""
        return [await workbench.save_state() for workbench in self._all]

    async def load_state(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restore what `save_state` returned."""
        for workbench, state in zip(self._all, states, strict=False):
            await workbench.load_state(state)

    async def _functions_of(self, workbench: Workbench) -> tuple[HostFunction, ...]:
        try:
            if workbench not in self._started and not is_started(workbench):
                self._started.append(workbench)
                await workbench.start()
            return await host_functions([workbench])
        except Exception as error:
            if workbench in self._started:
                self._started.remove(workbench)
                with suppress(Exception):
                    await workbench.stop()
            if isinstance(error, CodeRoomError):
                raise
            raise RequestError(
                f"The workbench {type(workbench).__name__!r} cannot be used, since it does not list its tools "
                f"({_cause(error)}). Check its settings, and that its server can be started and reached."
            ) from error


def _cause(error: BaseException) -> str:
    """The first exception inside of exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

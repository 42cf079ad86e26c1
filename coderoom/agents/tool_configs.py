"""Tools as a constructor gets them, and as they stand in a config."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from autogen_core import ComponentModel
from autogen_core.tools import BaseTool, FunctionTool

from coderoom.sandbox import check_functions

__all__ = ["check_tools", "dump_tool", "load_tool"]

# AutoGen makes a `FunctionTool` of a config from its source, and cannot find that again.
_loaded: WeakKeyDictionary[BaseTool[Any, Any], ComponentModel] = WeakKeyDictionary()


def load_tool(model: ComponentModel) -> BaseTool[Any, Any]:
    """The tool that stands in a config."""
    tool: BaseTool[Any, Any] = BaseTool.load_component(model)
    _loaded[tool] = model
    return tool


def check_tools(tools: Any) -> list[Any]:
    """The tools that a constructor gets.

    Raises:
        RequestError: One cannot be offered to code.
    """
    found: Any = list(tools) if isinstance(tools, Iterable) and not isinstance(tools, str) else tools
    check_functions(found, "tools")
    return list(found)


def dump_tool(tool: BaseTool[Any, Any] | Callable[..., Any]) -> ComponentModel:
    """A tool as it stands in a config; of a function that is its source.

    Raises:
        ValueError: The function has none that is enough to make it again.
    """
    if isinstance(tool, BaseTool):
        return _loaded.get(tool) or tool.dump_component()
    try:
        if not inspect.isfunction(tool):
            raise TypeError("it is no plain function")
        used = inspect.getclosurevars(tool)
        if used.nonlocals or used.globals:
            raise TypeError(f"it uses names from around it: {', '.join([*used.nonlocals, *used.globals])}")
        model = FunctionTool(tool, description=inspect.getdoc(tool) or "", name=tool.__name__).dump_component()
        with warnings.catch_warnings():  # AutoGen warns of what is loaded; this is here already.
            warnings.simplefilter("ignore")
            FunctionTool.load_component(model)
    except Exception as error:  # Whatever is wrong with a source.
        raise ValueError(
            f"Cannot serialize CodeActAgent with the tool {tool!r} ({type(error).__name__}: {error}). A function can "
            "stand in a config if its parameters and its result are annotated and its source is enough to define it; "
            "offer another one as a FunctionTool with global_imports, or as a tool of your own."
        ) from error
    return model

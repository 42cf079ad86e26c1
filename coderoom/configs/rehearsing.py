"""Finds what only the constructors of a team's components refuse: settings that do not go together.

For that, CodeRoom's components and AutoGen's agents, teams and conditions are made, with stand-ins for what would need
a key, a package or a server, or would run code of the file. What has parts from elsewhere is left out.
"""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Mapping
from typing import Any

from autogen_core.memory import ListMemory, Memory
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, FunctionTool, StaticWorkbench, Workbench

from coderoom._util.autogen import known_model_info
from coderoom.configs.building import as_our_own, load, making
from coderoom.configs.checking import PLACEHOLDER
from coderoom.configs.findings import Checked
from coderoom.configs.yaml import Location, value_at
from coderoom.errors import CodeRoomError, ConfigError, Problem
from coderoom.models.recorded import ReplayModel, ReplayModelInfo
from coderoom.sandbox import Effect

_MADE = ("coderoom.", "autogen_agentchat.", "autogen_core.")
_ABLE = {"vision": True, "function_calling": True}


def rehearse(checked: Checked) -> list[Problem]:
    """What the constructors refuse of a file in which no mistakes were found."""
    data = copy.deepcopy(checked.data)
    found: list[Problem] = []
    left_out: set[Location] = set()
    stand_ins: dict[str | None, Any] = {None: _model({})}
    components: dict[Location, Any] = dict.fromkeys(checked.replaced, ReplayModel) | dict(checked.components)
    for path, component_class in components.items():  # The inner ones first.
        component = value_at(data, path)
        config = component["config"]
        is_whole = not any(other[: len(path)] == path for other in left_out)
        try:
            if (stand_in := _stand_in(component_class, config, len(stand_ins))) is not None:
                stand_ins[str(path)] = stand_in
                component.update(provider=PLACEHOLDER, config={"text": str(path)})
            elif is_whole and component_class.__module__.startswith(_MADE):
                if getattr(component_class, "TAKES_DEFAULT_MODEL", False) and not config.get("model_client"):
                    config["model_client"] = {"provider": PLACEHOLDER, "config": {}}
                if types := config.get("custom_message_types"):  # Finding one is an import.
                    config["custom_message_types"] = [
                        each for each in types if each.startswith(_MADE) and "[" not in each
                    ]
                with making(stand_ins.__getitem__), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    load(component, object)
            else:
                left_out.add(path)
        except (ValueError, TypeError, CodeRoomError) as error:
            left_out.add(path)
            problem = as_our_own(checked, path, error)
            # What is missing here is no mistake of the file.
            found += problem.problems if isinstance(problem, ConfigError) else ()
        except Exception:  # AutoGen's may do anything with a stand-in.
            left_out.add(path)
    return found


def _stand_in(component_class: Any, config: Mapping[str, Any], number: int) -> Any:
    """What takes the place of a component for constructors that get it; `None`: it can be made itself."""
    if issubclass(component_class, ChatCompletionClient):
        info = config.get("model_info") or known_model_info(component_class, str(config.get("model"))) or {}
        return _model(info)
    if issubclass(component_class, BaseTool):
        return _tool(config, number)
    if issubclass(component_class, Workbench):
        return StaticWorkbench([])
    if issubclass(component_class, Memory):
        return ListMemory()
    if component_class.__module__.startswith("autogen_ext.code_executors."):
        return component_class.__new__(component_class)  # Its constructor makes folders.
    return None


def _model(info: Mapping[str, Any]) -> ReplayModel:
    """A model with what is known of another one; what is not known, it can do."""
    known = {name: value for name, value in info.items() if name in ReplayModelInfo.model_fields}
    return ReplayModel([], {**_ABLE, **known})


def _tool(config: Mapping[str, Any], number: int) -> FunctionTool:
    """A tool with the name of another one, and with the effect that its source declares."""

    def called(**arguments: Any) -> None:
        """Do nothing."""

    name, source = config.get("name"), config.get("source_code")
    if isinstance(source, str) and (effect := _effect_in(source)) is not None:
        called = effect(called)
    is_name = isinstance(name, str) and name.isidentifier()
    return FunctionTool(called, "", name=str(name) if is_name else f"tool_{number}")


def _effect_in(source: str) -> Effect | None:
    """The effect that a function declares with literal arguments, by its return annotation or a decorator.

    Raises:
        ValueError: It is not Python, or there is no such effect.
    """
    try:
        function = next(
            (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), None
        )
    except SyntaxError as error:
        raise ValueError(f"source_code is not Python: {error.msg} in its line {error.lineno}") from error
    places = [] if function is None else [*function.decorator_list, function.returns]
    calls = [node for place in places if place for node in ast.walk(place) if isinstance(node, ast.Call)]
    for call in calls:
        if ast.unparse(call.func).rpartition(".")[2] == "Effect":
            try:
                args = [ast.literal_eval(each) for each in call.args]
                named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            except ValueError:  # What is not literal cannot be known here.
                continue
            return Effect(*args, **named)
    return None

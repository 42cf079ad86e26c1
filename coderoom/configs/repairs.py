"""What AutoGen's configs lose, and how that is repaired. Used to check, to dump and to convert team files."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from coderoom._util.autogen import lost_arguments, part_of
from coderoom.agents import CodeExecutorAgent
from coderoom.configs.components import provider_of
from coderoom.configs.yaml import Location, value_at
from coderoom.teams import TextMentionTermination

SUCCESSORS: Mapping[str, tuple[Any, str]] = {
    "autogen_agentchat.agents.CodeExecutorAgent": (CodeExecutorAgent, "max_retries_on_error"),
    "autogen_agentchat.conditions.TextMentionTermination": (TextMentionTermination, "sources"),
}
"""Providers of AutoGen whose configs lack an argument, with CodeRoom's class and the argument."""

_GENERATED_NAME = re.compile(r"autogen-code-exec-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TEMPORARY_NAME = re.compile(r"tmp[a-z0-9_]{8}")


def replace_provider(envelope: dict[str, Any], component_class: Any, successor: Any) -> None:
    """Let a successor take the place of a class of AutoGen in a component."""
    envelope["provider"] = provider_of(successor)
    if envelope.get("label") == component_class.__name__:
        envelope["label"] = successor.__name__
    if (text := envelope.get("description")) and str(text) in str(component_class.__doc__):
        # As AutoGen's dump has it.
        envelope["description"] = str(successor.__doc__).strip().partition("\n\n")[0]
    config = envelope["config"]
    if successor is CodeExecutorAgent and config.get("model_client") is not None:
        # Without this key, AutoGen's agent has no system message, and CodeRoom's has the default.
        config["system_message"] = config.get("system_message") or ""


def temporary_values(provider: str, config: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a config of AutoGen's executors whose values belong to the process that made it.

    These are a generated container name, and folders that Python's `tempfile` created.
    """
    if not provider.startswith("autogen_ext.code_executors."):
        return
    if _GENERATED_NAME.fullmatch(str(config.get("container_name"))):
        yield "container_name"
    for key in ("work_dir", "bind_dir", "output_dir"):
        folder = Path(str(config.get(key)))
        if folder.parent in (Path(tempfile.gettempdir()), Path("/tmp")) and _TEMPORARY_NAME.fullmatch(folder.name):
            yield key


def fill_nulls(schema: type[BaseModel], config: dict[str, Any], *, is_dump: bool = False) -> list[Location]:
    """Write the nulls that AutoGen's dump leaves out and its schemas require; return where.

    With `is_dump`, the config comes straight from a dump. A missing value is `None` there, even if the field has
    another default.
    """
    missing = [place for place, kind in _wrong(schema, config).items() if kind == "missing"]
    if is_dump:
        fields = schema.model_fields.items()
        missing += [(name,) for name, field in fields if name not in config and field.default is not None]
    filled = []
    for path in missing:
        parent = value_at(config, path[:-1])
        if isinstance(parent, dict) and path[-1] not in parent:
            parent[str(path[-1])] = None
            if any(place[: len(path)] == path for place in _wrong(schema, config)):
                del parent[path[-1]]
            else:
                filled.append(path)
    return filled


def _wrong(schema: type[BaseModel], config: Mapping[str, Any]) -> dict[Location, str]:
    try:
        schema.model_validate(config)
    except ValidationError as error:
        return {one["loc"]: one["type"] for one in error.errors(include_url=False, include_input=False)}
    except Exception:  # A validator may raise anything.
        return {}
    return {}


def repair_dump(component: Any, envelope: dict[str, Any]) -> list[str]:
    """Put back what AutoGen's dump of a component and its parts lost; return what cannot be put back, in words."""
    lost = []
    config, schema = envelope["config"], component.component_config_schema
    for key, value in config.items():
        part = part_of(component, key)
        parts, values = (part, value) if isinstance(part, list | tuple) else ([part], [value])
        for inner, dumped in zip(parts, values, strict=False):
            if isinstance(dumped, dict) and "config" in dumped and dumped.get("provider") == provider_of(type(inner)):
                lost += repair_dump(inner, dumped)
    for key in list(temporary_values(envelope["provider"], config)):
        del config[key]
    successor, kept = SUCCESSORS.get(envelope["provider"], (None, ""))
    for name, value in lost_arguments(component).items():
        if name in schema.model_fields and not callable(value):
            config[name] = value
        elif successor is not None and name == kept:
            replace_provider(envelope, type(component), successor)
            schema = successor.component_config_schema
            config = envelope["config"] = schema(**config, **{name: value}).model_dump(exclude_none=True)
        else:
            label = getattr(component, "name", None)
            lost.append(f"{name} of {type(component).__name__}" + (f" {label!r}" if isinstance(label, str) else ""))
    fill_nulls(schema, config, is_dump=True)
    return lost

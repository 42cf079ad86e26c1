"""The components that are known by name: CodeRoom's, and what is installed of AutoGen's."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass, field
from typing import Any

from coderoom.configs.providers import provider_of

__all__ = ["Entry", "catalog"]

_MODULES = (
    "coderoom.agents",
    "coderoom.approval",
    "coderoom.configs",
    "coderoom.executors",
    "coderoom.teams",
    "autogen_agentchat.agents",
    "autogen_agentchat.base",
    "autogen_agentchat.conditions",
    "autogen_agentchat.teams",
    "autogen_core.model_context",
    "autogen_core.tools",
    "autogen_ext.agents.openai",
    "autogen_ext.agents.web_surfer",
    "autogen_ext.code_executors.azure",
    "autogen_ext.code_executors.docker",
    "autogen_ext.code_executors.jupyter",
    "autogen_ext.code_executors.local",
    "autogen_ext.models.anthropic",
    "autogen_ext.models.cache",
    "autogen_ext.models.ollama",
    "autogen_ext.models.openai",
    "autogen_ext.models.replay",
    "autogen_ext.tools.code_execution",
    "autogen_ext.tools.http",
    "autogen_ext.tools.mcp",
)
"""Where the public names of components are. Some of AutoGen's need packages that may not be installed."""


@dataclass(slots=True)
class Entry:
    """A component class and the providers by which a file can name it.

    Attributes:
        component_class: The class.
        names: Its providers, first the one by which it is dumped.
    """

    component_class: Any
    names: list[str] = field(default_factory=list)


def catalog() -> list[Entry]:
    """List the component classes that are known and installed, sorted by their providers."""
    from autogen_core._component_config import WELL_KNOWN_PROVIDERS

    entries: dict[type, Entry] = {}
    for module_name in _MODULES:
        for name, found in _public_classes(module_name).items():
            entry = entries.setdefault(found, Entry(found, [provider_of(found)]))
            provider = f"{module_name}.{name}"
            if provider not in entry.names:
                entry.names.append(provider)
    by_name = {name: entry for entry in entries.values() for name in entry.names}
    for short, provider in WELL_KNOWN_PROVIDERS.items():
        if provider in by_name:
            by_name[provider].names.append(short)
    return sorted(entries.values(), key=lambda entry: entry.names[0])


def _public_classes(module_name: str) -> dict[str, type]:
    from autogen_core import is_component_class

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(module_name)
    except ImportError:  # one of AutoGen's, with a package missing
        return {}
    public = {name: getattr(module, name, None) for name in getattr(module, "__all__", ())}
    return {
        name: found
        for name, found in public.items()
        if isinstance(found, type)
        and is_component_class(found)
        and hasattr(found, "component_config_schema")
        and not getattr(found, "__abstractmethods__", None)
    }

"""Which component classes a team file may name, and which kind of component belongs under which key."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import types
import typing
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
from autogen_core import is_component_class
from autogen_core.code_executor import CodeExecutor
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, Workbench
from pydantic import AliasChoices, BaseModel, RootModel, TypeAdapter

from coderoom._util.autogen import WELL_KNOWN_PROVIDERS
from coderoom.agents import BranchJudge
from coderoom.approval import Approval
from coderoom.configs.yaml import in_a_line, nearest, show_key

_VARIABLE = "AUTOGEN_ALLOWED_PROVIDER_NAMESPACES"
_EXTRAS = {"ollama": "ollama", "anthropic": "anthropic"}


class ProviderError(Exception):
    """A provider cannot be used, perhaps because a package is `not_installed`; `close` are those that may be meant."""

    def __init__(self, message: str, *, not_installed: bool = False, close: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.not_installed = not_installed
        self.close = close


def how_to_install(error: ImportError) -> str:
    """What to install so that an import succeeds, in words."""
    root = (error.name or "").partition(".")[0]
    if root in _EXTRAS:
        return f"it needs the package {root!r}: pip install 'coderoom[{_EXTRAS[root]}]'"
    reason = " ".join(str(error).split())
    if isinstance(error, ModuleNotFoundError) and root:
        return f"it needs the module {root!r}, which is not installed ({reason})"
    return f"an import that it needs failed: {reason}"


def provider_of(component_class: type) -> str:
    """The name under which AutoGen dumps a class."""
    override = getattr(component_class, "component_provider_override", None)
    return str(override or f"{component_class.__module__}.{component_class.__qualname__}")


@functools.cache
def constructor_defaults(component_class: Any) -> dict[str, Any]:
    """The defaults of a class for fields that its config requires, as some of AutoGen's do."""
    defaults = {}
    for name, parameter in inspect.signature(component_class).parameters.items():
        known = component_class.component_config_schema.model_fields.get(name)
        if known is None or not known.is_required() or parameter.default is parameter.empty:
            continue
        # The constructor of `AssistantAgent` takes `None` for a field that is a `bool` in its config.
        default = False if parameter.default is None and known.annotation is bool else parameter.default
        with suppress(Exception):  # A validator may raise anything.
            TypeAdapter(known.annotation).validate_python(default)
            defaults[name] = default
    return defaults


@dataclass(frozen=True, slots=True)
class Components:
    """The component classes that a file may name: those of AutoGen, CodeRoom and the `trusted` namespaces."""

    trusted: tuple[str, ...]

    @classmethod
    def trusting(cls, trust: Sequence[str], env: Mapping[str, str]) -> Components:
        """Trust the given namespaces, and those that the environment names."""
        given = [trust] if isinstance(trust, str) else list(trust)
        names = [*given, *env.get(_VARIABLE, "").split(",")]
        return cls(tuple(name.strip() for name in names if name.strip()))

    def trusts(self, provider: str) -> bool:
        """Whether a provider may be imported."""
        root = provider.partition(".")[0]
        if root.startswith("autogen_") or root == "coderoom":
            return True
        return any(provider == name or provider.startswith(f"{name}.") for name in self.trusted)

    def refusal(self, provider: str) -> str:
        """Why an untrusted provider is not imported, and what to do, in words."""
        root = provider.partition(".")[0]
        return (
            f"the provider {show_key(provider)} is in a namespace that is not trusted; if you trust its code, "
            f"pass --trust {root} or set {_VARIABLE}={root}"
        )

    def find(self, provider: str) -> Any:
        """Import the component class of a dotted name, or of one of AutoGen's short names."""
        full = WELL_KNOWN_PROVIDERS.get(provider, provider)
        module_name, dot, class_name = full.rpartition(".")
        if not dot or not all(part.isidentifier() for part in full.split(".")):
            close = nearest(provider, WELL_KNOWN_PROVIDERS)
            hint = f"; did you mean {close[0]!r}?" if close else ", such as 'autogen_agentchat.agents.AssistantAgent'"
            message = f"the provider {show_key(provider)} is not the dotted name of a class{hint}"
            raise ProviderError(message, close=close)
        if not self.trusts(full):
            raise ProviderError(self.refusal(provider))
        module = _import(module_name, full)
        found = getattr(module, class_name, None)
        if found is None:
            close = [f"{module_name}.{name}" for name in nearest(class_name, _component_names(module), 3)]
            raise ProviderError(_no_such(full, close), close=close)
        if not _is_component(found):
            close = nearest(class_name, _component_names(module))
            hint = f"; did you mean '{module.__name__}.{close[0]}'?" if close else ""
            raise ProviderError(f"the provider {show_key(full)} is not a component class{hint}")
        if getattr(found, "__abstractmethods__", None):
            raise ProviderError(f"the provider {show_key(full)} is abstract; name one of its subclasses")
        return found


def _import(name: str, provider: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            close = _neighbours(name, provider)
            raise ProviderError(_no_such(provider, close), close=close) from None
        raise ProviderError(f"{provider} cannot be imported: {how_to_install(error)}", not_installed=True) from None
    except (Exception, SystemExit) as error:  # A module may raise anything.
        raise ProviderError(f"{provider} cannot be imported: {in_a_line(error)}") from None


def _neighbours(module_name: str, provider: str) -> list[str]:
    """The providers that may be meant by one whose module does not exist."""
    parent_name = module_name
    while "." in parent_name:
        parent_name, _, missing = parent_name.rpartition(".")
        try:
            parent = importlib.import_module(parent_name)
        except Exception:
            continue
        modules = [module.name for module in pkgutil.iter_modules(getattr(parent, "__path__", []))]
        rest = provider.removeprefix(f"{parent_name}.{missing}")
        return [f"{parent_name}.{name}{rest}" for name in nearest(missing, modules)]
    return []


def _no_such(provider: str, close: list[str]) -> str:
    hint = "; did you mean " + " or ".join(repr(name) for name in close) + "?" if close else ""
    return f"there is no such provider: {show_key(provider)}{hint}"


def _component_names(module: ModuleType) -> list[str]:
    exported = getattr(module, "__all__", None)
    names = exported if isinstance(exported, (list, tuple)) else [name for name in vars(module) if name[:1] != "_"]
    return [str(name) for name in names if _is_component(getattr(module, str(name), None))]


def _is_component(found: Any) -> bool:
    """Whether this is a class that can be loaded from a config."""
    is_class = isinstance(found, type) and is_component_class(found)
    return is_class and hasattr(found, "component_config_schema") and hasattr(found, "component_type")


_MODULES = (
    "coderoom.agents",
    "coderoom.approval",
    "coderoom.configs",
    "coderoom.executors",
    "coderoom.models",
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
"""The modules with the public names of components. Some of AutoGen's need packages that may not be installed."""


@dataclass(slots=True)
class Entry:
    """A component class and its names in team files, first the one under which it is dumped."""

    component_class: Any
    names: list[str] = field(default_factory=list)


def catalog() -> list[Entry]:
    """The known component classes that are installed, sorted by their providers."""
    entries: dict[type, Entry] = {}
    for module_name in _MODULES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = importlib.import_module(module_name)
        except ImportError:  # A package that it needs is not installed.
            continue
        for name in _component_names(module):
            found = getattr(module, name)
            if getattr(found, "__abstractmethods__", None):
                continue
            entry = entries.setdefault(found, Entry(found, [provider_of(found)]))
            provider = f"{module_name}.{name}"
            if provider not in entry.names:
                entry.names.append(provider)
    by_name = {name: entry for entry in entries.values() for name in entry.names}
    for short, provider in WELL_KNOWN_PROVIDERS.items():
        if provider in by_name:
            by_name[provider].names.append(short)
    return sorted(entries.values(), key=lambda entry: entry.names[0])


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of component: its name in a sentence, and its base classes."""

    phrase: str
    bases: tuple[type, ...]

    def has(self, component_class: type) -> bool:
        """Whether a class is of this kind."""
        return issubclass(component_class, self.bases)


MODEL = Kind("a model client", (ChatCompletionClient,))
TEAM = Kind("a team", (Team,))
PARTICIPANT = Kind("an agent or a team", (ChatAgent, Team))
TOOL = Kind("a tool", (BaseTool,))
_TERMINATION = Kind("a termination condition", (TerminationCondition,))
_APPROVAL = Kind("an approval", (Approval,))
_BY_FIELD = {
    "model_client": MODEL,
    "client": MODEL,
    "model_context": Kind("a model context", (ChatCompletionContext,)),
    "code_executor": Kind("a code executor", (CodeExecutor,)),
    "termination_condition": _TERMINATION,
    "conditions": _TERMINATION,
    "participants": PARTICIPANT,
    "team": TEAM,
    "agent": Kind("an agent", (ChatAgent,)),
    "workbench": Kind("a workbench", (Workbench,)),
    "tools": TOOL,
    "approval": _APPROVAL,
    "approvals": _APPROVAL,
    "branch_judge": Kind("a judge of branches", (BranchJudge,)),
}


def kind_for(field: str | None) -> Kind | None:
    """The kind of component that belongs under a key, by convention; `None` if there is no convention."""
    return None if field is None else _BY_FIELD.get(field)


def all_kinds() -> list[Kind]:
    """All kinds of component that a file can contain."""
    return list(dict.fromkeys([TEAM, *_BY_FIELD.values()]))


# --- What the models of configs say about the shape of a value ---


def alternatives(annotation: Any) -> list[Any]:
    """The plain annotations that an annotation allows, without `Annotated`, unions and aliases."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [part for choice in get_args(annotation) for part in alternatives(choice)]
    if hasattr(annotation, "__value__"):  # a `type X = ...` alias
        return alternatives(annotation.__value__)
    if isinstance(annotation, typing.TypeVar):
        return alternatives(annotation.__bound__) if annotation.__bound__ else [Any]
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        return alternatives(annotation.model_fields["root"].annotation)
    return [annotation]


def item_alternatives(choices: Iterable[Any]) -> list[Any]:
    """The annotations that the items of a list may have."""
    items: list[Any] = []
    for choice in choices:
        origin, arguments = get_origin(choice), get_args(choice)
        if _is_class(origin, Iterable) and (len(arguments) == 1 or issubclass(origin, tuple)):
            items += [part for argument in arguments if argument is not ... for part in alternatives(argument)]
    return items


def value_alternatives(choices: Iterable[Any]) -> list[Any] | None:
    """The annotations that the values of a mapping may have; `None` if no mapping is allowed."""
    values: list[Any] = []
    is_mapping = False
    for choice in choices:
        origin, arguments = get_origin(choice), get_args(choice)
        if _is_class(origin, Mapping) and len(arguments) == 2:
            is_mapping = True
            values += alternatives(arguments[1])
        elif _is_class(choice, Mapping) or typing.is_typeddict(choice) or choice in (Any, object):
            is_mapping = True
    return values if is_mapping else None


def model_for(value: Mapping[str, Any], models: Sequence[type[BaseModel]]) -> type[BaseModel] | None:
    """The model that a mapping is most likely meant for: by its tag if it has one, else by its keys."""
    fitting = [model for model in models if not _contradicts(value, model)] or list(models)
    if not fitting:
        return None
    return max(fitting, key=lambda model: sum(key in fields_by_key(model) for key in value))


def fields_by_key(model: type[BaseModel]) -> dict[str, str]:
    """The keys that a model reads, including aliases, each with its field."""
    keys: dict[str, str] = {}
    config = model.model_config
    by_name = bool(config.get("populate_by_name") or config.get("validate_by_name"))
    by_alias = config.get("validate_by_alias") is not False
    for name, known in model.model_fields.items():
        alias = known.validation_alias if known.validation_alias is not None else known.alias
        if alias is None or by_name:
            keys[name] = name
        if alias is not None and by_alias:
            choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
            for choice in choices:
                keys[choice if isinstance(choice, str) else str(choice.path[0])] = name
    return keys


def by_field(model: type[BaseModel], data: Mapping[str, Any]) -> dict[str, Exception | None]:
    """Validate each field of a model on its own: the exception for each wrong key, `None` for a missing one."""
    keys = fields_by_key(model)
    given = {keys[key] for key in data if key in keys}
    wrong: dict[str, Exception | None] = {}
    for key, name in keys.items():
        known = model.model_fields[name]
        if key in data:
            try:
                annotation: Any = Annotated[known.annotation, known]
                TypeAdapter(annotation).validate_python(data[key])
            except Exception as error:  # A validator may raise anything.
                wrong[key] = error
        elif known.is_required() and name not in given:
            wrong[key] = None
    return wrong


def _contradicts(value: Mapping[str, Any], model: type[BaseModel]) -> bool:
    for key, name in fields_by_key(model).items():
        for choice in alternatives(model.model_fields[name].annotation):
            if get_origin(choice) is Literal and key in value and value[key] not in get_args(choice):
                return True
    return False


def _is_class(annotation: Any, bases: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, bases)

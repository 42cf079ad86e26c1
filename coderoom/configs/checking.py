"""Checks a whole file: every mistake at once, without building any object that the file describes.

A walk goes through the document along the config schemas of the classes that it names. Pydantic validates each config;
the walk only adds what pydantic cannot know: locations, providers, unknown keys. It returns a cleaned copy for AutoGen
to load.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core import ComponentModel
from autogen_core.model_context import BufferedChatCompletionContext
from pydantic import BaseModel, ValidationError

from coderoom._util.autogen import WELL_KNOWN_PROVIDERS, known_model_info, loads_past_versions
from coderoom._util.text import MASK
from coderoom.configs.components import (
    MODEL,
    PARTICIPANT,
    TEAM,
    TOOL,
    Components,
    Kind,
    ProviderError,
    alternatives,
    by_field,
    constructor_defaults,
    fields_by_key,
    item_alternatives,
    kind_for,
    model_for,
    provider_of,
    value_alternatives,
)
from coderoom.configs.findings import Checked, describe, explain, is_under
from coderoom.configs.functions import tool_of
from coderoom.configs.reading import Document
from coderoom.configs.repairs import SUCCESSORS, fill_nulls, temporary_values
from coderoom.configs.variables import References, resolve_all
from coderoom.configs.yaml import Location, did_you_mean, in_a_line, nearest, show, show_key, value_at
from coderoom.configs.yaml import walk as every_value
from coderoom.models.services import MODEL_VARIABLE, NO_KEY, OPENAI, UNKNOWN_MODEL, is_model_text

KEYS: Mapping[str, type] = {
    "provider": str,
    "component_type": str,
    "version": int,
    "component_version": int,
    "description": str,
    "label": str,
    "config": dict,
}
"""The keys of a component's envelope, and the type of each."""

PLACEHOLDER = "coderoom.configs.building.InjectedModel"
"""The provider that stands for a model client that is given later."""

_PHRASES = {str: "a text", int: "an integer", dict: "a mapping"}
_MAPPING = "file is a mapping with the keys 'provider' and 'config', for instance 'provider: "
_EXAMPLES = {
    TEAM: f"; a team {_MAPPING}autogen_agentchat.teams.RoundRobinGroupChat'",
    MODEL: f"; a model {_MAPPING}{OPENAI}' and 'config: {{model: gpt-4o}}'",
}
_LARGE = 10**9
"""Python refuses to format integers of thousands of digits."""


def check(
    document: Document, kind: Kind, components: Components, env: Mapping[str, str], *, replace_models: bool = False
) -> Checked:
    """Check a file that describes a component; with `replace_models`, a placeholder replaces every `model_client`."""
    references = References()
    resolved = resolve_all(document.data, env, references.__setitem__)
    checked = Checked(document, references)
    for path, value in every_value(resolved):
        if value == MASK:
            checked.warn(path, "the value is masked, as in a dump of AutoGen; write it, or a variable such as ${NAME}")
    walk = _Walk(checked, components, env, replace_models=replace_models)
    cleaned = walk.component(resolved, (), kind)
    _warn_of_unknown_agents(checked, cleaned)
    _warn_of_no_end(checked, cleaned)
    return checked.finish(cleaned)


def check_config(document: Document, schema: type[BaseModel]) -> Checked:
    """Check a file that is one config, without references to variables."""
    checked = Checked(document, References())
    walk = _Walk(checked, Components(()), {}, replace_models=False)
    return checked.finish(walk.config(document.data, schema, ()))


def _warn_of_no_end(checked: Checked, data: Any) -> None:
    """Warn of a team whose agents take turns for ever."""
    if issubclass(checked.components.get((), object), RoundRobinGroupChat | SelectorGroupChat) and not any(
        data["config"].get(name) for name in ("max_turns", "termination_condition")
    ):
        checked.warn((), "nothing ends this team: it has neither 'max_turns' nor a 'termination_condition'")


def _warn_of_unknown_agents(checked: Checked, data: Any) -> None:
    """Warn of names in `sources` and `handoffs` that nobody in the team has."""
    kinds: dict[Location, Any] = dict(checked.components)
    configs = {path: value_at(data, (*path, "config")) for path in kinds}
    speaking = [config for path, config in configs.items() if kinds[path].component_type in ("agent", "team")]
    names = {str(config["name"]) for config in speaking if config.get("name")}
    if not all("name" in config or config.keys() & {"agent", "team", "participants"} for config in speaking):
        return  # Others have names that their classes give them.
    for path, config in configs.items():
        for key in ("sources", "handoffs"):
            listed = config.get(key)
            for index, given in enumerate(listed if isinstance(listed, list) else ()):
                name, place = given.get("target") if isinstance(given, dict) else given, (*path, "config", key, index)
                if isinstance(name, str) and name not in {*names, "user"} and place not in checked.unresolved:
                    hint = did_you_mean(name, sorted(names)) or f"; the names are {', '.join(sorted(names))}"
                    checked.warn(place, f"nobody in the team has the name {name!r}{hint}")


class _Walk:
    """Goes through a document; every method returns the cleaned copy of its part."""

    def __init__(
        self, checked: Checked, components: Components, env: Mapping[str, str], *, replace_models: bool
    ) -> None:
        self._checked = checked
        self._components = components
        # A server of the user's own may need no key, but the client requires one. Of no environment, nothing is known.
        self._is_keyless = bool(env) and not env.get("OPENAI_API_KEY")
        self._has_own_server = bool(env.get("OPENAI_BASE_URL"))
        self._replace_models = replace_models
        self._guessed: set[Location] = set()  # The locations of components whose class is only a guess.
        self._own: set[Location] = set()  # The locations of components, whose own check explains what is wrong.

    def component(self, value: Any, path: Location, kind: Kind | None, name: str | None = None) -> Any:
        """Check a component under the key `name` of a config."""
        self._own.add(path)
        if isinstance(value, str) and kind is TOOL and path not in self._checked.unresolved:
            try:
                value = tool_of(value)
            except ValueError as error:
                self._checked.problem(
                    path, f"expected {kind.phrase}, or the source of a function as a text, but {error}"
                )
                return value
        if not isinstance(value, dict):
            phrase = kind.phrase if kind else "a component"
            message = f"expected {phrase} (a mapping with 'provider' and 'config'), got {describe(value)}"
            self._checked.problem(path, message)
            return value
        if name == "model_client" and self._replace_models:
            self._checked.replaced.add(path)
            return {"provider": PLACEHOLDER, "component_type": "model", "config": {}}
        if text := self._model_text(value, path):
            prefix, _, openai_name = text.partition(":")
            if prefix != "openai":
                self._checked.replaced.add(path)
                self._checked.elsewhere[path] = text
                return {"provider": PLACEHOLDER, "component_type": "model", "config": {"text": text}}
            value = {**value, "config": {**value["config"], "model": openai_name.strip()}}
            self._checked.as_written.add(path)
        value = self._without_anchors(value, path)
        envelope = self._envelope(value, path)
        component_class = self._find_class(value, path, kind)
        inside = fields_by_key(component_class.component_config_schema) if component_class else {}
        for key in value:
            if key not in KEYS:
                misplaced = key in inside or "provider" not in value
                elsewhere = "; it belongs into 'config'" if misplaced else ""
                self._checked.unknown_key(path, key, KEYS, elsewhere)
        if component_class is not None:
            self._check_class(envelope, path, component_class, kind)
        if component_class is not None and self._knows_version(envelope, path, component_class):
            given = self._without_losses(envelope["config"], (*path, "config"), component_class)
            if self._replace_models and getattr(component_class, "TAKES_DEFAULT_MODEL", False):
                given["model_client"] = given.get("model_client") or {}
            envelope["config"] = self.config(given, component_class.component_config_schema, (*path, "config"))
            self._complete_model(component_class, envelope["config"], path)
        else:
            envelope["config"] = self._guess(envelope["config"], (*path, "config"))
        if component_class is not None:
            self._checked.components[path] = component_class
        return envelope

    def _without_losses(self, config: dict[str, Any], path: Location, component_class: Any) -> dict[str, Any]:
        """A copy of a config with defaults for what is missing; reports what AutoGen loses or has lost in it."""
        name, provider = component_class.__name__, provider_of(component_class)
        schema = component_class.component_config_schema
        if provider in SUCCESSORS:
            successor, lost = SUCCESSORS[provider]
            instead = f"use {provider_of(successor)!r}, as 'coderoom convert' does"
            if lost in config:
                self._checked.problem((*path, lost), f"AutoGen's {name} ignores {lost!r} in a config; {instead}")
                config = {key: value for key, value in config.items() if key != lost}
            elif config.get("model_client") is not None:
                message = f"AutoGen's {name} has no {lost!r} in a config, so it never retries; {instead}"
                self._checked.warn(path[:-1], message)
        defaults = constructor_defaults(component_class)
        given = {**defaults, **copy.deepcopy(config)}
        nulls = [key for key, value in defaults.items() if value is None and key not in config]
        if missing := [*nulls, *map(show, fill_nulls(schema, given))]:
            names, them = " and ".join(map(repr, missing)), "it" if len(missing) == 1 else "them"
            message = f"null is assumed for {names}; AutoGen's dump leaves {them} out, and its loader requires {them}"
            self._checked.warn(path[:-1], f"{message} ('coderoom convert' writes {them})")
        if issubclass(component_class, BufferedChatCompletionContext) and given.get("initial_messages"):
            message = "AutoGen loads these as mappings, which models refuse; use HeadAndTailChatCompletionContext"
            self._checked.warn((*path, "initial_messages"), message)
        for key in temporary_values(provider, config):
            message = "this is a name that AutoGen made for one process; leave it out, as 'coderoom convert' does"
            self._checked.warn((*path, key), message)
        return given

    def _model_text(self, value: Mapping[str, Any], path: Location) -> str | None:
        """The text in a client of OpenAI that says where the model is, as for `--model`; `None` for a mere name."""
        config, provider = value.get("config"), value.get("provider")
        if not isinstance(config, dict) or WELL_KNOWN_PROVIDERS.get(str(provider), provider) != OPENAI:
            return None
        model, place = config.get("model"), (*path, "config", "model")
        if not isinstance(model, str) or place in self._checked.unresolved or not is_model_text(model):
            return None
        reference = self._checked.references.get(place)
        # A server of the user's own may have models with any names.
        own_name = "base_url" in config and (reference is None or f"${{{MODEL_VARIABLE}" not in reference.raw)
        return None if own_name else model

    def _complete_model(self, component_class: Any, config: dict[str, Any], path: Location) -> None:
        """Add a key for a server that needs none, and what is assumed of a model that AutoGen does not know."""
        has_own_server = self._has_own_server or config.get("base_url")
        if self._is_keyless and has_own_server and provider_of(component_class) == OPENAI and not config.get("api_key"):
            config["api_key"] = NO_KEY
            self._checked.as_written.add(path)
        model = config.get("model")
        if not isinstance(model, str) or (*path, "config", "model") in self._checked.unresolved:
            return
        if (
            not any(config.get(key) for key in ("model_info", "model_capabilities"))
            and known_model_info(component_class, model) is None
        ):
            config["model_info"] = dict(UNKNOWN_MODEL)
            self._checked.as_written.add(path)
            assumed = ", ".join(f"{key}: {str(value).lower()}" for key, value in UNKNOWN_MODEL.items())
            message = f"AutoGen does not know this model, and there is no 'model_info'; this is assumed: {assumed}"
            self._checked.warn((*path, "config", "model"), message)

    def _envelope(self, value: Mapping[str, Any], path: Location) -> dict[str, Any]:
        """Return the known keys of a component, and report those of the wrong type."""
        envelope: dict[str, Any] = {}
        for key, expected in KEYS.items():
            given, place = value.get(key), (*path, key)
            if given is None:
                if key == "provider" and key in value:
                    self._checked.problem(place, "the provider is empty; it names the class of this component")
            elif expected is int and (type(given) is int or (isinstance(given, str) and given.isdecimal())):
                envelope[key] = int(given)
            elif isinstance(given, expected) and not isinstance(given, bool):
                envelope[key] = given
            elif place not in self._checked.unresolved:
                self._checked.problem(place, f"expected {_PHRASES[expected]}, got {describe(given)}")
        return {"config": {}, **envelope}

    def _find_class(self, value: Mapping[str, Any], path: Location, kind: Kind | None) -> Any:
        """Return the class that a component names, or after reporting why there is none, the one that may be meant."""
        provider, place = value.get("provider"), (*path, "provider")
        misspelt = any(nearest(key, KEYS) == ["provider"] for key in value if key not in KEYS)
        if "provider" not in value and not misspelt:
            example = "" if path or kind is None else _EXAMPLES.get(kind, "")
            message = f"the key 'provider' is missing, which names the class of this component{example}"
            self._checked.problem(path, message)
        if not isinstance(provider, str) or place in self._checked.unresolved:
            return None
        try:
            return self._components.find(provider)
        except ProviderError as error:
            self._checked.problem(place, str(error), not_installed=error.not_installed)
            self._guessed.add(path)
            with suppress(ProviderError):  # Its config is checked too.
                return self._components.find(error.close[0]) if error.close else None
            return None

    def _check_class(self, envelope: dict[str, Any], path: Location, component_class: Any, kind: Kind | None) -> None:
        """Report a class of the wrong kind, and a wrong `component_type`."""
        name, right = component_class.__name__, component_class.component_type
        if kind is not None and path not in self._guessed and not kind.has(component_class):
            where = "here" if path else "at the top of a team file"
            article = "an" if right[:1] in "aeiou" else "a"
            message = f"expected {kind.phrase} {where}, and {name} is {article} {right.replace('_', ' ')}"
            if not path and PARTICIPANT.has(component_class):
                message += "; list it under 'participants' of a 'coderoom.teams.CodingTeam'"
            self._checked.problem((*path, "provider"), message)
        given, place = envelope.get("component_type"), (*path, "component_type")
        if given is not None and given != right and place not in self._checked.unresolved:
            message = f"expected {right!r}, which is what {name} is, got {describe(given)}"
            self._checked.problem(place, message)
        # AutoGen takes a nested team without a `component_type` for an agent.
        envelope["component_type"] = right

    def _knows_version(self, envelope: Mapping[str, Any], path: Location, component_class: Any) -> bool:
        """Whether the config is of the installed version, whose schema is known; reports unsupported versions."""
        version, place = envelope.get("component_version"), (*path, "component_version")
        name, installed = component_class.__name__, component_class.component_version
        if not version or version == installed:
            return True
        if version > installed:
            shown = version if version < _LARGE else "a far greater one"
            message = f"{name} is installed in version {installed}, and this config is of version {shown}"
            self._checked.problem(place, message)
            return True
        if not loads_past_versions(component_class):
            message = f"{name} is installed in version {installed} and reads no config of version {version}"
            self._checked.problem(place, message)
        return False

    def config(self, value: Any, schema: type[BaseModel], path: Location) -> Any:
        """Check a config against its schema."""
        cleaned = self._model(value, schema, path)
        try:
            schema.model_validate(cleaned)
        except ValidationError as error:
            self._explain(error, cleaned, path)
        except Exception as error:  # A validator may raise anything.
            # One field's validator hides the mistakes of the others.
            wrong = by_field(schema, cleaned if isinstance(cleaned, dict) else {})
            for key, problem in wrong.items():
                if (*path, key) in self._own | self._checked.unresolved:
                    continue
                if isinstance(problem, ValidationError):
                    self._explain(problem, cleaned[key], (*path, key))
                elif isinstance(problem, Exception):
                    self._checked.problem((*path, key), f"the value was refused: {in_a_line(problem)}")
                else:
                    self._checked.missing_key(path, key)
            if not wrong:
                self._checked.problem(path, f"the config was refused: {in_a_line(error)}")
        return cleaned

    def _model(self, value: Any, schema: type[BaseModel], path: Location) -> Any:
        """Go through a mapping that a schema describes, and report the keys that it does not read."""
        if not isinstance(value, dict):
            return value
        keys = fields_by_key(schema)
        cleaned = {}
        for key, inner in self._without_anchors(value, path, keep=keys).items():
            place = (*path, key)
            if key in keys:
                choices = alternatives(schema.model_fields[keys[key]].annotation)
                cleaned[key] = self._value(inner, choices, place, key)
            elif schema.model_config.get("extra") == "allow":
                cleaned[key] = self._free(inner, place)
            else:
                self._checked.unknown_key(path, key, keys)
        if isinstance(cleaned.get("participants"), list):
            self._names(cleaned["participants"], (*path, "participants"))
        if isinstance(cleaned.get("custom_message_types"), list):
            self._message_types(cleaned["custom_message_types"], (*path, "custom_message_types"))
        return cleaned

    def _value(self, value: Any, choices: Sequence[Any], path: Location, name: str) -> Any:
        """Go through a value that may be any of the annotations in `choices`, under the key `name`."""
        if isinstance(value, dict):
            return self._mapping(value, choices, path, name)
        if isinstance(value, list):
            items = item_alternatives(choices)
            if not items:
                return self._free(value, path)
            return [self._value(inner, items, (*path, index), name) for index, inner in enumerate(value)]
        if value is not None and [choice for choice in choices if choice is not type(None)] == [ComponentModel]:
            return self.component(value, path, kind_for(name), name)
        return value

    def _mapping(self, value: dict[str, Any], choices: Sequence[Any], path: Location, name: str) -> Any:
        models = [choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)]
        values = value_alternatives(choices)
        plain = [model for model in models if not issubclass(model, ComponentModel)]
        if len(plain) < len(models) and ("provider" in value or (not plain and values is None)):
            return self.component(value, path, kind_for(name), name)
        model = model_for(value, plain)
        if model is not None:
            return self._model(value, model, path)
        if values:
            return {key: self._value(inner, values, (*path, key), name) for key, inner in value.items()}
        return self._free(value, path)

    def _free(self, value: Any, path: Location) -> Any:
        """Go through a part that no schema describes, and report untrusted providers in it."""
        for place, inner in every_value(value, path):
            provider = inner.get("provider") if isinstance(inner, dict) else None
            if isinstance(provider, str) and "." in provider and "config" in inner and inner.keys() <= KEYS.keys():
                self._refuse_untrusted(provider, (*place, "provider"))
        return value

    def _refuse_untrusted(self, provider: str, path: Location) -> None:
        if not self._components.trusts(provider):
            self._checked.problem(path, self._components.refusal(provider))

    def _guess(self, value: Any, path: Location, name: str | None = None) -> Any:
        """Go through the config of an unknown class: what looks like a component is checked as one."""
        if isinstance(value, dict):
            if "provider" in value:
                return self.component(value, path, kind_for(name), name)
            value = self._without_anchors(value, path)
            return {key: self._guess(inner, (*path, key), key) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._guess(inner, (*path, index), name) for index, inner in enumerate(value)]
        return value

    def _names(self, participants: list[Any], path: Location) -> None:
        if not participants:
            self._checked.problem(path, "a team needs at least one participant")
        seen: set[str] = set()
        for index, participant in enumerate(participants):
            name, place = value_at(participant, ("config", "name")), (*path, index, "config", "name")
            if not isinstance(name, str) or place in self._checked.unresolved:
                continue
            if not name.isidentifier():
                message = f"the name {show_key(name)} is not a valid identifier; use letters, digits and '_' only"
                self._checked.problem(place, message)
            elif name in seen:
                self._checked.problem(place, f"two participants have the name {name!r}; each needs its own")
            seen.add(name)

    def _message_types(self, names: list[Any], path: Location) -> None:
        """Report untrusted message types: like a provider, the name of one is an import."""
        for index, name in enumerate(names):
            parts = name.replace("]", "").split("[") if isinstance(name, str) else []
            for part in parts:
                self._refuse_untrusted(part, (*path, index))

    def _explain(self, error: ValidationError, cleaned: Any, path: Location) -> None:
        """Report what pydantic found, without what was reported already."""
        depth = len(path)
        raw = {place[depth:]: one.raw for place, one in self._checked.references.items() if place[:depth] == path}
        inside = {place for place in self._own | self._checked.unresolved if len(place) > depth}
        for mistake in explain(error.errors(include_url=False), cleaned, raw):
            place = (*path, *mistake.path)
            if is_under(place, inside):
                continue
            if mistake.missing:
                self._checked.missing_key(place, mistake.missing)
            else:
                self._checked.problem(place, mistake.message)

    def _without_anchors(self, value: dict[str, Any], path: Location, keep: Collection[str] = ()) -> dict[str, Any]:
        anchors = [key for key in value if key.startswith("x-") and key not in keep]
        self._checked.dropped.update((*path, key) for key in anchors)
        return {key: inner for key, inner in value.items() if key not in anchors}

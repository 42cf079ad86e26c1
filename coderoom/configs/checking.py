"""The whole check of a file: every mistake at once, without creating any object that the file describes.

A walk goes through the document along the schemas of the classes that it names. It collects the mistakes, and a cleaned
copy, which is what AutoGen is given to load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autogen_core import ComponentModel
from pydantic import BaseModel, ValidationError

from coderoom.configs.explaining import describe, explain
from coderoom.configs.findings import Checked, Findings, is_under
from coderoom.configs.kinds import Kind, kind_for
from coderoom.configs.locations import Location, did_you_mean, in_a_line, nearest, show_key
from coderoom.configs.providers import Components, ProviderError
from coderoom.configs.reading import Document
from coderoom.configs.shapes import (
    alternatives,
    by_field,
    fields_by_key,
    item_alternatives,
    model_for,
    value_alternatives,
)
from coderoom.configs.variables import References, resolve_all

__all__ = ["check", "check_config"]


KEYS: Mapping[str, type] = {
    "provider": str,
    "component_type": str,
    "version": int,
    "component_version": int,
    "description": str,
    "label": str,
    "config": dict,
}
"""The keys of an envelope, and what each holds."""

_PHRASES = {str: "a text", int: "an integer", dict: "a mapping"}
_SKETCH = (
    "; a team file is a mapping with the keys 'provider' and 'config', for instance "
    "'provider: autogen_agentchat.teams.RoundRobinGroupChat'"
)


def read_envelope(value: Mapping[str, Any], path: Location, findings: Findings) -> dict[str, Any]:
    """Take what an envelope may hold out of a mapping, and tell what is of the wrong type."""
    envelope: dict[str, Any] = {}
    for key, expected in KEYS.items():
        given, place = value.get(key), (*path, key)
        if given is None:
            if key == "provider" and key in value:
                findings.problem(place, "the provider is empty; it names the class of this component")
        elif expected is int and _is_integer(given):
            envelope[key] = int(given)
        elif isinstance(given, expected) and not isinstance(given, bool):
            envelope[key] = given
        elif place not in findings.unresolved:
            findings.problem(place, f"expected {_PHRASES[expected]}, got {describe(given)}")
    return {"config": {}, **envelope}


def tell_unknown(path: Location, key: str, known: Mapping[str, Any], findings: Findings, elsewhere: str = "") -> None:
    """Tell of a key that nothing reads."""
    close = nearest(key, known)
    findings.unknown.setdefault(path, {})[key] = close[0] if close else None
    hint = did_you_mean(key, known) or elsewhere
    findings.problem((*path, key), f"unknown key {show_key(key)}{hint}")


def find_class(value: Mapping[str, Any], path: Location, components: Components, findings: Findings) -> Any:
    """Give the class that an envelope names, or `None` after telling why there is none."""
    provider, place = value.get("provider"), (*path, "provider")
    misspelt = any(nearest(key, KEYS) == ["provider"] for key in value if key not in KEYS)
    if "provider" not in value and not misspelt:
        sketch = "" if path else _SKETCH
        findings.problem(path, f"the key 'provider' is missing, which names the class of this component{sketch}")
    if not isinstance(provider, str) or place in findings.unresolved:
        return None
    try:
        return components.find(provider)
    except ProviderError as error:
        findings.problem(place, str(error), not_installed=error.not_installed)
        return None


def check_class(
    envelope: dict[str, Any], path: Location, component_class: Any, kind: Kind | None, findings: Findings
) -> None:
    """Tell where the class is not what is expected here, or not of the type that the envelope says."""
    name, right = component_class.__name__, component_class.component_type
    if kind is not None and not kind.has(component_class):
        where = "here" if path else "at the top of a team file"
        findings.problem((*path, "provider"), f"expected {kind.phrase} {where}, and {name} is {_article(right)}")
    given, place = envelope.get("component_type"), (*path, "component_type")
    if given is not None and given != right and place not in findings.unresolved:
        findings.problem(place, f"expected {right!r}, which is what {name} is, got {describe(given)}")
    # AutoGen takes a nested team without its type for an agent, so it is always said.
    envelope["component_type"] = right


_LARGE = 10**9  # Python refuses to write numbers of thousands of digits


def check_version(envelope: Mapping[str, Any], path: Location, component_class: Any, findings: Findings) -> bool:
    """Say whether the config is of the installed version, so that its schema is known."""
    version, place = envelope.get("component_version"), (*path, "component_version")
    name, installed = component_class.__name__, component_class.component_version
    if not version or version == installed:
        return True
    if version > installed:
        shown = version if version < _LARGE else "a far greater one"
        findings.problem(place, f"{name} is installed in version {installed}, and this config is of version {shown}")
        return True
    from coderoom._util.autogen import loads_past_versions  # It imports much of AutoGen.

    if not loads_past_versions(component_class):
        findings.problem(place, f"{name} is installed in version {installed} and reads no config of version {version}")
    return False


def _is_integer(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal())


def _article(word: str) -> str:
    text = word.replace("_", " ")
    return f"an {text}" if text[:1] in "aeiou" else f"a {text}"


PLACEHOLDER = "coderoom.configs.build.InjectedModel"
"""The provider that stands for a model client that is given later."""


def check(
    document: Document, kind: Kind, components: Components, env: Mapping[str, str], *, replace_models: bool = False
) -> Checked:
    """Check a file whose top is a component.

    Args:
        document: The file.
        kind: What the component at the top has to be.
        components: The classes that the file may name.
        env: The variables that its texts may refer to.
        replace_models: Put a placeholder in place of every component under a key `model_client`.

    Returns:
        The mistakes and the cleaned copy.
    """
    references = References()
    resolved = resolve_all(document.data, env, references.__setitem__)
    findings = Findings(document, references)
    walk = _Walk(findings, components, replace_models=replace_models)
    return findings.finish(walk.component(resolved, (), kind))


def check_config(document: Document, schema: type[BaseModel]) -> Checked:
    """Check a file that is one config, in which nothing refers to variables."""
    findings = Findings(document, References())
    walk = _Walk(findings, Components(()), replace_models=False)
    return findings.finish(walk.config(document.data, schema, ()))


class _Walk:
    """Goes through a document; every method gives the cleaned copy of the part that it was given."""

    def __init__(self, findings: Findings, components: Components, *, replace_models: bool) -> None:
        self._findings = findings
        self._components = components
        self._replace_models = replace_models
        self._own: set[Location] = set()  # where components stand: what pydantic says about these is not needed

    def component(self, value: Any, path: Location, kind: Kind | None, name: str | None = None) -> Any:
        """Check a component, which stands under the key `name` of a config."""
        self._own.add(path)
        if not isinstance(value, dict):
            phrase = kind.phrase if kind else "a component"
            message = f"expected {phrase} (a mapping with 'provider' and 'config'), got {describe(value)}"
            self._findings.problem(path, message)
            return value
        if name == "model_client" and self._replace_models:
            self._findings.replaced.add(path)
            return {"provider": PLACEHOLDER, "component_type": "model", "config": {}}
        value = self._without_anchors(value, path)
        envelope = read_envelope(value, path, self._findings)
        component_class = find_class(value, path, self._components, self._findings)
        inside = fields_by_key(component_class.component_config_schema) if component_class else {}
        for key in value:
            if key not in KEYS:
                elsewhere = "; it belongs into 'config'" if key in inside else ""
                tell_unknown(path, key, KEYS, self._findings, elsewhere)
        place = (*path, "config")
        if component_class is None:
            envelope["config"] = self._guess(envelope["config"], place)
            return envelope
        check_class(envelope, path, component_class, kind, self._findings)
        if check_version(envelope, path, component_class, self._findings):
            envelope["config"] = self.config(envelope["config"], component_class.component_config_schema, place)
        else:
            envelope["config"] = self._guess(envelope["config"], place)
        self._findings.components[path] = component_class
        return envelope

    def config(self, value: Any, schema: type[BaseModel], path: Location) -> Any:
        """Check a config against its schema."""
        cleaned = self._model(value, schema, path)
        try:
            schema.model_validate(cleaned)
        except ValidationError as error:
            self._explain(error, cleaned, path)
        except Exception as error:  # a validator of somebody else's class may raise anything
            self._explain_each(error, schema, cleaned, path)
        return cleaned

    def _model(self, value: Any, schema: type[BaseModel], path: Location) -> Any:
        """Go through a mapping that a schema describes, and tell of the keys that it does not read."""
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
                tell_unknown(path, key, keys, self._findings)
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
        """Go through what no schema describes: no untrusted provider may hide in it."""
        if isinstance(value, dict):
            provider = value.get("provider")
            if isinstance(provider, str) and "." in provider and "config" in value and value.keys() <= KEYS.keys():
                self._refuse_untrusted(provider, (*path, "provider"))
            for key, inner in value.items():
                self._free(inner, (*path, key))
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                self._free(inner, (*path, index))
        return value

    def _refuse_untrusted(self, provider: str, path: Location) -> None:
        if not self._components.trusts(provider):
            self._findings.problem(path, self._components.refusal(provider))

    def _guess(self, value: Any, path: Location, name: str | None = None) -> Any:
        """Go through the config of a class that is not known: what looks like a component is one."""
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
            self._findings.problem(path, "a team needs at least one participant")
        seen: set[str] = set()
        for index, participant in enumerate(participants):
            config = participant.get("config") if isinstance(participant, dict) else None
            name = config.get("name") if isinstance(config, dict) else None
            place = (*path, index, "config", "name")
            if not isinstance(name, str) or place in self._findings.unresolved:
                continue
            if not name.isidentifier():
                message = f"the name {show_key(name)} is not a valid identifier; use letters, digits and '_' only"
                self._findings.problem(place, message)
            elif name in seen:
                self._findings.problem(place, f"two participants have the name {name!r}; each needs its own")
            seen.add(name)

    def _message_types(self, names: list[Any], path: Location) -> None:
        """Like a provider, the name of a message type is an import."""
        for index, name in enumerate(names):
            parts = name.replace("]", "").split("[") if isinstance(name, str) else []
            for part in parts:
                self._refuse_untrusted(part, (*path, index))

    def _explain(self, error: ValidationError, cleaned: Any, path: Location) -> None:
        """Tell what pydantic found, but for what was told already."""
        depth = len(path)
        raw = {place[depth:]: one.raw for place, one in self._findings.references.items() if place[:depth] == path}
        inside = {place for place in self._own | self._findings.unresolved if len(place) > depth}
        for mistake in explain(error.errors(include_url=False), cleaned, raw):
            place = (*path, *mistake.path)
            if not self._findings.has_told(place, mistake) and not is_under(place, inside):
                self._findings.problem(place, mistake.message)

    def _explain_each(self, error: Exception, schema: type[BaseModel], cleaned: Any, path: Location) -> None:
        """Tell what is wrong with each field, where one of them hides the mistakes of the others."""
        wrong = by_field(schema, cleaned if isinstance(cleaned, dict) else {})
        for key, problem in wrong.items():
            if (*path, key) in self._own | self._findings.unresolved:
                continue
            if isinstance(problem, ValidationError):
                self._explain(problem, cleaned[key], (*path, key))
            elif isinstance(problem, Exception):
                self._findings.problem((*path, key), f"the value was refused: {in_a_line(problem)}")
            elif key not in self._findings.unknown.get(path, {}).values():
                self._findings.problem(path, f"the key {key!r} is missing")
        if not wrong:
            self._findings.problem(path, f"the config was refused: {in_a_line(error)}")

    def _without_anchors(self, value: dict[str, Any], path: Location, keep: Collection[str] = ()) -> dict[str, Any]:
        kept = {}
        for key, inner in value.items():
            if key.startswith("x-") and key not in keep:
                self._findings.dropped.add((*path, key))
            else:
                kept[key] = inner
        return kept

"""The whole check of a file: every mistake at once, without making a single object of what it describes.

A walk goes through the document along the schemas of the classes that it names. On its way it collects the mistakes,
and a cleaned copy, which is what AutoGen is given to load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autogen_core import ComponentModel
from pydantic import BaseModel, ValidationError

from coderoom.configs.document import Document
from coderoom.configs.envelope import KEYS, check_class, check_version, find_class, read_envelope, tell_unknown
from coderoom.configs.explaining import describe, explain
from coderoom.configs.findings import Checked, Findings, is_under
from coderoom.configs.kinds import Kind, kind_for
from coderoom.configs.locations import Path, in_a_line, show_key
from coderoom.configs.providers import Components
from coderoom.configs.shapes import (
    alternatives,
    by_field,
    fields_by_key,
    item_alternatives,
    model_for,
    value_alternatives,
)
from coderoom.configs.variables import References, resolve_all

__all__ = ["PLACEHOLDER", "check", "check_config"]

PLACEHOLDER = "coderoom.configs.inject.InjectedModel"
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
        self._own: set[Path] = set()  # where components stand: what pydantic says about these is not needed

    def component(self, value: Any, path: Path, kind: Kind | None, name: str | None = None) -> Any:
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

    def config(self, value: Any, schema: type[BaseModel], path: Path) -> Any:
        """Check a config against its schema."""
        cleaned = self._model(value, schema, path)
        try:
            schema.model_validate(cleaned)
        except ValidationError as error:
            self._explain(error, cleaned, path)
        except Exception as error:  # a validator of somebody else's class may raise anything
            self._explain_each(error, schema, cleaned, path)
        return cleaned

    def _model(self, value: Any, schema: type[BaseModel], path: Path) -> Any:
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

    def _value(self, value: Any, choices: Sequence[Any], path: Path, name: str) -> Any:
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

    def _mapping(self, value: dict[str, Any], choices: Sequence[Any], path: Path, name: str) -> Any:
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

    def _free(self, value: Any, path: Path) -> Any:
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

    def _refuse_untrusted(self, provider: str, path: Path) -> None:
        if not self._components.trusts(provider):
            self._findings.problem(path, self._components.refusal(provider))

    def _guess(self, value: Any, path: Path, name: str | None = None) -> Any:
        """Go through the config of a class that is not known: what looks like a component is one."""
        if isinstance(value, dict):
            if "provider" in value:
                return self.component(value, path, kind_for(name), name)
            value = self._without_anchors(value, path)
            return {key: self._guess(inner, (*path, key), key) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._guess(inner, (*path, index), name) for index, inner in enumerate(value)]
        return value

    def _names(self, participants: list[Any], path: Path) -> None:
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
                message = f"the name {show_key(name)} is no identifier; use letters, digits and '_' only"
                self._findings.problem(place, message)
            elif name in seen:
                self._findings.problem(place, f"two participants have the name {name!r}; each needs its own")
            seen.add(name)

    def _message_types(self, names: list[Any], path: Path) -> None:
        """Like a provider, the name of a message type is an import."""
        for index, name in enumerate(names):
            parts = name.replace("]", "").split("[") if isinstance(name, str) else []
            for part in parts:
                self._refuse_untrusted(part, (*path, index))

    def _explain(self, error: ValidationError, cleaned: Any, path: Path) -> None:
        """Tell what pydantic found, but for what was told already."""
        depth = len(path)
        raw = {place[depth:]: one.raw for place, one in self._findings.references.items() if place[:depth] == path}
        inside = {place for place in self._own | self._findings.unresolved if len(place) > depth}
        for mistake in explain(error.errors(include_url=False), cleaned, raw):
            place = (*path, *mistake.path)
            if not self._findings.has_told(place, mistake) and not is_under(place, inside):
                self._findings.problem(place, mistake.message)

    def _explain_each(self, error: Exception, schema: type[BaseModel], cleaned: Any, path: Path) -> None:
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

    def _without_anchors(self, value: dict[str, Any], path: Path, keep: Collection[str] = ()) -> dict[str, Any]:
        kept = {}
        for key, inner in value.items():
            if key.startswith("x-") and key not in keep:
                self._findings.dropped.add((*path, key))
            else:
                kept[key] = inner
        return kept

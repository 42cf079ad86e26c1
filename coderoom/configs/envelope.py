"""The envelope of a component: `provider`, `config` and what else stands beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coderoom.configs.explaining import describe
from coderoom.configs.findings import Findings
from coderoom.configs.kinds import Kind
from coderoom.configs.locations import Path, did_you_mean, nearest, show_key
from coderoom.configs.providers import Components, ProviderError

__all__ = ["KEYS", "check_class", "check_version", "find_class", "read_envelope", "tell_unknown"]

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


def read_envelope(value: Mapping[str, Any], path: Path, findings: Findings) -> dict[str, Any]:
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


def tell_unknown(path: Path, key: str, known: Mapping[str, Any], findings: Findings, elsewhere: str = "") -> None:
    """Tell of a key that nothing reads."""
    close = nearest(key, known)
    findings.unknown.setdefault(path, {})[key] = close[0] if close else None
    hint = did_you_mean(key, known) or elsewhere
    findings.problem((*path, key), f"unknown key {show_key(key)}{hint}")


def find_class(value: Mapping[str, Any], path: Path, components: Components, findings: Findings) -> Any:
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
    envelope: dict[str, Any], path: Path, component_class: Any, kind: Kind | None, findings: Findings
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


def check_version(envelope: Mapping[str, Any], path: Path, component_class: Any, findings: Findings) -> bool:
    """Say whether the config is of the installed version, so that its schema is known."""
    from autogen_core import ComponentFromConfig

    version, place = envelope.get("component_version"), (*path, "component_version")
    name, installed = component_class.__name__, component_class.component_version
    if not version or version == installed:
        return True
    if version > installed:
        shown = version if version < _LARGE else "a far greater one"
        findings.problem(place, f"{name} is installed in version {installed}, and this config is of version {shown}")
        return True
    if component_class._from_config_past_version.__func__ is ComponentFromConfig._from_config_past_version.__func__:  # type: ignore[attr-defined]
        findings.problem(place, f"{name} is installed in version {installed} and reads no config of version {version}")
    return False


def _is_integer(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal())


def _article(word: str) -> str:
    text = word.replace("_", " ")
    return f"an {text}" if text[:1] in "aeiou" else f"a {text}"

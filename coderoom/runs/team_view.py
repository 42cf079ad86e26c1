"""Shows what a team file consists of, for `coderoom show`."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from rich.tree import Tree

from coderoom._util.text import visible

_LONGEST = 100
_ENVELOPE = ("name", "description")


def team_tree(team: dict[str, Any]) -> Tree:
    """A team file's content as a tree: each component with its settings, below the one that it belongs to.

    Args:
        team: The content, as `read_team` returns it.
    """
    return _tree("", team)


def _tree(role: str, component: dict[str, Any]) -> Tree:
    config = component.get("config")
    config = config if isinstance(config, dict) else {}
    kind = str(component["provider"]).rpartition(".")[2]
    title = Text(f"{role}: " if role else "", style="dim").append(visible(kind), style="bold")
    if config.get("name"):
        title.append(f" {visible(str(config['name']))}", style="cyan")
    tree = Tree(title, guide_style="dim")
    if description := component.get("description") or config.get("description"):
        tree.add(Text(_short(description), style="italic"))
    for key, value in config.items():
        if key not in _ENVELOPE:
            _add(tree, key, value)
    return tree


def _add(tree: Tree, key: str, value: Any) -> None:
    if _is_component(value):
        tree.add(_tree(key.replace("_", " "), value))
    elif isinstance(value, list) and value and all(map(_is_component, value)):
        for each in value:
            tree.add(_tree(key.replace("_", " ").removesuffix("s"), each))
    elif value not in (None, "", [], {}):
        listed = isinstance(value, list) and all(isinstance(each, str) for each in value)
        tree.add(Text.assemble((f"{visible(key)}: ", "dim"), _short(", ".join(value) if listed else value)))


def _is_component(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("provider"), str)


def _short(value: Any) -> str:
    value = str(value).lower() if isinstance(value, bool) else value
    text = visible(" ".join(str(value).split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

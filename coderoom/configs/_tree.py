"""A document as a tree of nodes that know their place, built from events and guarded against what grows.

Both readers (YAML and JSON) feed one `TreeBuilder`. It works with an explicit stack, so no depth of nesting can
exhaust Python's own; it sees a cycle as an alias to a collection that is still open, and it counts what aliases stand
for, so that a few lines cannot unfold into millions of values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from coderoom.configs._places import Mark, Path, show, show_key
from coderoom.errors import ConfigError, Problem

__all__ = ["MAX_DEPTH", "MAX_NODES", "Node", "TreeBuilder", "unfold"]

MAX_DEPTH = 100
"""How deep a team file may nest. A team of teams of teams is about 30 deep."""
MAX_NODES = 20_000
"""How many keys and values a team file may hold, those that aliases repeat counted each time."""

Kind = Literal["scalar", "list", "mapping"]


@dataclass(slots=True, eq=False)
class Node:
    """A value of the document with its place.

    Attributes:
        kind: Which of the attributes below holds the value.
        mark: Where the value begins.
        value: A scalar's value.
        text: A scalar's own text, which is what it means as a key.
        merge: Whether it is the plain scalar `<<`.
        items: A list's items.
        entries: A mapping's values, each with the place of its key.
        size: How many keys and values it holds, itself included and aliases unfolded.
        height: How many levels it has.
    """

    kind: Kind
    mark: Mark
    value: Any = None
    text: str = ""
    merge: bool = False
    items: list[Node] = field(default_factory=list)
    entries: dict[str, tuple[Mark, Node]] = field(default_factory=dict)
    size: int = 1
    height: int = 1


@dataclass(slots=True, eq=False)
class _Open:
    """A collection whose end was not read yet; a mapping's children are keys and values in turn."""

    kind: Kind
    mark: Mark
    anchor: str | None
    children: list[Node] = field(default_factory=list)
    size: int = 1
    height: int = 1


class TreeBuilder:
    """Builds the tree of one document.

    Args:
        file: What to call the file in problems.

    Attributes:
        root: The document's only value, once it was read.
        problems: The mistakes that do not stop the reading.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node] = {}

    def scalar(self, mark: Mark, value: Any, text: str, *, anchor: str | None = None, merge: bool = False) -> None:
        """Add a scalar."""
        node = Node("scalar", mark, value=self._sound(mark, value), text=text, merge=merge)
        self._name(anchor, node)
        self._add(node)

    def alias(self, mark: Mark, anchor: str) -> None:
        """Add what an anchor stands for."""
        if any(frame.anchor == anchor for frame in self._stack):
            self.fail(mark, f"the alias {show_key('*' + anchor)} stands inside its own anchor, so it would never end")
        node = self._anchors.get(anchor)
        if node is None:
            self.fail(mark, f"there is no anchor {show_key('&' + anchor)} above this alias")
        # A copy that knows the place where it is used; what is inside keeps the place where it was written.
        self._add(Node(node.kind, mark, node.value, node.text, False, node.items, node.entries, node.size, node.height))

    def open(self, kind: Literal["list", "mapping"], mark: Mark, *, anchor: str | None = None) -> None:
        """Begin a collection."""
        if len(self._stack) >= MAX_DEPTH:
            self.fail(mark, f"the file nests deeper than {MAX_DEPTH} levels")
        self._stack.append(_Open(kind, mark, anchor))

    def close(self) -> None:
        """End the innermost collection."""
        path = self._path()
        frame = self._stack.pop()
        node = Node(frame.kind, frame.mark, size=frame.size, height=frame.height)
        if frame.kind == "list":
            node.items = frame.children
        else:
            node.entries = self._entries(frame, path)
        self._name(frame.anchor, node)
        self._add(node)

    def problem(self, mark: Mark, message: str, path: Path | None = None) -> None:
        """Note a mistake that does not stop the reading."""
        self.problems.append(Problem(message, self.file, mark.line, show(self._path() if path is None else path)))

    def fail(self, mark: Mark, message: str) -> NoReturn:
        """Stop the reading.

        Raises:
            ConfigError: Always; with the mistakes that were noted before.
        """
        self.problem(mark, message)
        raise ConfigError(self.problems) from None

    def _add(self, node: Node) -> None:
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        frame.children.append(node)
        frame.size += node.size
        frame.height = max(frame.height, node.height + 1)
        if frame.size > MAX_NODES:
            self.fail(
                node.mark, f"the file holds more than {MAX_NODES:,} keys and values, with its aliases written out"
            )
        if len(self._stack) + node.height > MAX_DEPTH + 1:
            self.fail(node.mark, f"the file nests deeper than {MAX_DEPTH} levels, with its aliases written out")

    def _name(self, anchor: str | None, node: Node) -> None:
        if anchor is not None:
            self._anchors[anchor] = node

    def _sound(self, mark: Mark, value: Any) -> Any:
        if not isinstance(value, str) or value.isascii():
            return value
        try:
            # Escapes such as "\ud83d\ude00" come as two halves of one character.
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self.problem(mark, r"the text holds half of a character, a lone '\ud8..' or '\udc..' escape")
            return value.encode("utf-8", "replace").decode("utf-8")

    def _path(self) -> Path:
        path: list[str | int] = []
        for frame in self._stack:
            if frame.kind == "list":
                path.append(len(frame.children))
            elif len(frame.children) % 2:
                path.append(frame.children[-1].text)
        return tuple(path)

    def _entries(self, frame: _Open, path: Path) -> dict[str, tuple[Mark, Node]]:
        entries: dict[str, tuple[Mark, Node]] = {}
        merged: list[Node] = []
        for key, value in zip(frame.children[::2], frame.children[1::2], strict=True):
            if key.kind != "scalar":
                self.problem(key.mark, "a key has to be a text, and this one is a list or a mapping", path)
            elif key.merge:
                merged += self._merged(value, path)
            elif key.text in entries:
                first = entries[key.text][0].line
                self.problem(
                    key.mark, f"the key {show_key(key.text)} is here twice; the first is on line {first}", path
                )
            else:
                entries[key.text] = (key.mark, value)
        for node in merged:
            for name, entry in node.entries.items():
                entries.setdefault(name, entry)
        return entries

    def _merged(self, value: Node, path: Path) -> list[Node]:
        nodes = value.items if value.kind == "list" else [value]
        for node in nodes:
            if node.kind != "mapping":
                self.problem(node.mark, "'<<' takes a mapping, or a list of mappings, to merge in", path)
        return [node for node in nodes if node.kind == "mapping"]


def unfold(node: Node, record: Callable[[Path, Mark], None], path: Path = ()) -> Any:
    """Make plain data of a tree, aliases written out, and report the place of every value in it."""
    if node.kind == "scalar":
        return node.value
    if node.kind == "list":
        items = []
        for index, item in enumerate(node.items):
            record((*path, index), item.mark)
            items.append(unfold(item, record, (*path, index)))
        return items
    data = {}
    for name, (mark, value) in node.entries.items():
        record((*path, name), mark)
        data[name] = unfold(value, record, (*path, name))
    return data

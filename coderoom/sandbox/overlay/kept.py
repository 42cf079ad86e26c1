"""Changes of a session as data, which a later session of the same folder can have again. Used by `Overlay`."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from coderoom.errors import RequestError
from coderoom.sandbox.overlay.plan import Difference
from coderoom.sandbox.overlay.tree import Node, Tree, read
from coderoom.sandbox.overlay.writing import Content, Source

_MOST: Final = 32 << 20


def as_data(differences: Mapping[str, Difference], tree: Tree) -> bytes:
    """What a session has at some paths.

    Raises:
        RequestError: It is too much.
    """
    found, left = [], _MOST
    for path, difference in differences.items():
        node = difference.after
        item: dict[str, Any] = {"path": path}
        if node is not None:
            item |= {"kind": node.kind, "mode": node.mode}
            if node.kind == "link":
                item["link"] = tree.link(path)
            elif node.kind == "file":
                content = read(tree.open(path), left + 1)
                left -= len(content)
                item["content"] = b64encode(content).decode()
        if left < 0:
            raise RequestError(f"The changes have more than {_MOST >> 20} MiB, which are not kept.")
        found.append(item)
    return zlib.compress(json.dumps(found).encode())


def from_data(data: bytes) -> dict[str, tuple[Node | None, Source]]:
    """What a session had, for it to be written."""
    found: dict[str, tuple[Node | None, Source]] = {}
    for item in json.loads(zlib.decompress(data)):
        node = Node(item["kind"], item["mode"], 0, (), 0) if "kind" in item else None
        found[item["path"]] = node, _Kept(b64decode(item.get("content", "")), item.get("link", ""))
    return found


class _Kept(Content):
    """The content of a file, or the target of a link."""

    def __init__(self, content: bytes, target: str) -> None:
        super().__init__(content)
        self._target = target

    def link(self, path: str, /) -> str:
        """The target."""
        return self._target

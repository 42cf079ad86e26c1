"""The engines and walls that the conformance suite runs on."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from coderoom.sandbox import Sandbox

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """An engine behind a wall."""

    engine: str
    wall: str

    @property
    def has_node(self) -> bool:
        return self.wall != "docker" and shutil.which("node") is not None

    def sandbox(self, **arguments: Any) -> Sandbox:
        return Sandbox(self.wall, **arguments)

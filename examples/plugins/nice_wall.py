"""The wall `nice`: CodeRoom's wall `namespaces`, started by the program `nice`, so that code gives way."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox import SandboxConfig
from coderoom.sandbox.walls.local import Facts, Start
from coderoom.sandbox.walls.namespaces import NamespacesWall


class NiceWall(NamespacesWall):
    """The wall `namespaces` with the lowest priority."""

    name = "nice"

    async def prepare(self, spec: SandboxConfig, program: str, facts: Facts, tidying: contextlib.ExitStack) -> Start:
        """Put the program before the command."""
        nice = shutil.which("nice", path="/usr/bin:/bin")  # Not from PATH, where code could have put one.
        if nice is None:
            raise SandboxUnavailable("There is no program `nice` on this machine; coreutils has it.")
        start = await super().prepare(spec, program, facts, tidying)
        return dataclasses.replace(start, argv=[nice, "-n", "19", *start.argv])

    def describe(self, facts: Facts) -> tuple[str, str]:
        """Say so."""
        detail, remedy = super().describe(facts)
        return f"{detail} Its processes have the lowest priority.", remedy

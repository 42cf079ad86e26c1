"""The wall for where there are no namespaces to be had: Landlock, the filter of system calls and the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.guest.isolation import landlock
from coderoom.sandbox.walls.base import WallReport
from coderoom.sandbox.walls.local import Start, identity_to_become
from coderoom.sandbox.walls.path_rules import PathRuleWall
from coderoom.sandbox.walls.probe import Facts

__all__ = ["LandlockWall"]

_WITH_TRUNCATE, _WITH_TCP, _WITH_SCOPES = 3, 4, 6
_NEEDED = "It takes Linux 6.2 or later, with `landlock` among the security modules (`lsm=` at boot)."


class LandlockWall(PathRuleWall):
    """The rules that each runner puts itself under, and nothing else."""

    name = "landlock"

    def _check(self) -> None:
        version = landlock.abi()
        if not version:
            raise SandboxUnavailable("The kernel has no Landlock, or it is switched off.")
        if version < _WITH_TRUNCATE and identity_to_become() is None:
            raise SandboxUnavailable(
                f"The kernel's Landlock is of ABI {version}, which lets code empty its user's files; it takes ABI 3."
            )

    def _prepare(self, argv: Sequence[str], boot: Mapping[str, Any]) -> Start:
        return Start(argv=argv, boot=boot)

    def _report(self, facts: Facts) -> WallReport:
        version = landlock.abi()
        if facts.error:
            remedy = "" if version >= _WITH_TRUNCATE else _NEEDED
            return WallReport(self.name, available=False, detail=facts.error, remedy=remedy)
        but = "how much it writes to its temporary folder is not bounded"
        if version < _WITH_SCOPES:
            but += "; before ABI 6 signals are kept in by the filter only: code cannot end what it has started"
        if version < _WITH_TCP:
            but += "; before ABI 4 the network is kept away by the filter only"
        return self._report_made(f"Landlock ABI {version}", but)

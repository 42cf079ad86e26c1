"""Adapts how code starts programs: they do not get the limit on the address space of Python; set up by the runner.

Node, for instance, reserves far more than it uses. What programs use is limited all the same, by `RLIMIT_DATA` and by
the room.
"""

from __future__ import annotations

import os
from typing import Any

from .cpython import lift_address_space, use_no_flags
from .imports import when_imported

_system = os.system


def install() -> None:
    """Adapt `os.system`, and `subprocess` now or when the code imports it."""
    when_imported("subprocess", _adapt)
    os.system = system


def _adapt(subprocess: Any) -> None:
    use_no_flags(subprocess)
    lift_address_space(subprocess)


def system(command: Any) -> int:
    """Execute the command in a subshell."""
    return _system("ulimit -S -v unlimited 2>/dev/null\n" + os.fsdecode(command))

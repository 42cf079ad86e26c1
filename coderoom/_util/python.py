"""The default interpreter for code in a sandbox."""

from __future__ import annotations

import os
import sys
from typing import Final

VARIABLE: Final = "CODEROOM_PYTHON"
"""The variable with its absolute path, for programs with a Python environment of their own such as Studio."""


def default_python() -> str:
    """The interpreter that `CODEROOM_PYTHON` names, or the one that runs this process."""
    return os.environ.get(VARIABLE) or sys.executable

"""The interpreter that code runs in where none is named."""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["VARIABLE", "default_python"]

VARIABLE: Final = "CODEROOM_PYTHON"
"""Names that interpreter by its absolute path; for programs that run in an environment of their own, such as Studio."""


def default_python() -> str:
    """The interpreter that `CODEROOM_PYTHON` names, else the one that runs this."""
    return os.environ.get(VARIABLE) or sys.executable

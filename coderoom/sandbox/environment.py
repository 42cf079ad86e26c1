"""The environment variables of the code: an allow-list, without those of the host. Used by `CPythonEngine`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from coderoom.errors import RequestError

__all__ = ["DEFAULTS", "check_variables", "environment"]

DEFAULTS = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "TERM": "dumb",
    "USER": "coder",
    # A process with threads cannot be forked safely, and many forks run at the same time anyway.
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return all environment variables of the code.

    Args:
        extra: More variables; they replace default ones of the same name.

    Raises:
        RequestError: A name or a value is not valid.
    """
    check_variables(extra)
    zone = {"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}
    return {**DEFAULTS, **zone, **extra}


def check_variables(variables: Mapping[str, str]) -> None:
    """Check the names and values of environment variables.

    Raises:
        RequestError: A name or a value is not valid.
    """
    for name, value in variables.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise RequestError(f"env: {name!r} is not the name of an environment variable.")
        if not isinstance(value, str) or "\0" in value:  # It may be a secret, so it is not shown.
            kind = "text with a null character" if isinstance(value, str) else f"a {type(value).__name__}"
            raise RequestError(f"env: the value of {name!r} is {kind}, and text was expected.")

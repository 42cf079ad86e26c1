"""The environment of code inside: an allow-list, and nothing of the host's."""

from __future__ import annotations

import os
from collections.abc import Mapping

from coderoom.errors import RequestError

__all__ = ["check_variables", "environment"]

_BASE = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "TERM": "dumb",
    "USER": "coder",
    # A process with threads cannot be forked safely, and a fork of many has little use for more of them.
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of the code.

    Args:
        extra: What comes besides, or in the place of, what programs need.

    Raises:
        RequestError: A name or a value is none.
    """
    check_variables(extra)
    zone = {"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}
    return {**_BASE, **zone, **extra}


def check_variables(variables: Mapping[str, str]) -> None:
    """See to it that these can be variables of an environment.

    Raises:
        RequestError: A name or a value is none.
    """
    for name, value in variables.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise RequestError(f"env: {name!r} is not the name of an environment variable.")
        if not isinstance(value, str) or "\0" in value:  # It may be a secret, so it is not shown.
            kind = "text with a null character" if isinstance(value, str) else f"a {type(value).__name__}"
            raise RequestError(f"env: the value of {name!r} is {kind}, and text was expected.")

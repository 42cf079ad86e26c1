"""Python that the policy `restricted` lets through, and names that it does not."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ALLOWED_MODULES", "ORDINARY", "REFUSED_ATTRIBUTES", "REFUSED_BUILTINS", "REFUSED_MODULES"]


def _pieces() -> dict[str, str]:
    text = (Path(__file__).parent / "ordinary.txt").read_text(encoding="utf-8")
    pieces = [piece.partition("\n") for piece in text.removeprefix("### ").split("\n### ")]
    return {name: code for name, _, code in pieces}


ORDINARY = _pieces()
"""Python as models write it, with nothing in it that anyone could mind; each piece asserts what it comes to."""

_ALLOWED = """
    math random statistics json re string datetime collections itertools functools operator copy decimal fractions
    typing dataclasses enum time abc asyncio bisect contextlib heapq numbers textwrap types
"""
_MODULES = "os sys io pathlib socket urllib requests subprocess multiprocessing numpy"
_BUILTINS = "open eval exec compile input breakpoint globals locals help"
_ATTRIBUTES = """
    __bases__ __base__ __subclasses__ __mro__ __globals__ __code__ __builtins__ __dict__ __getattribute__ __reduce__
    __reduce_ex__ __closure__ __self__ __func__ __loader__ __spec__ __weakref__ __anything__ f_back f_globals f_builtins
    f_locals f_code gi_frame gi_code cr_frame cr_code ag_frame ag_code tb_frame tb_next func_globals
"""

ALLOWED_MODULES = _ALLOWED.split()
REFUSED_MODULES = _MODULES.split()
REFUSED_BUILTINS = _BUILTINS.split()
REFUSED_ATTRIBUTES = _ATTRIBUTES.split()

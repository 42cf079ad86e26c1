"""Python that the policy `restricted` lets through, and Python that it does not."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ORDINARY"]


def _pieces() -> dict[str, str]:
    text = (Path(__file__).parent / "ordinary.txt").read_text(encoding="utf-8")
    pieces = [piece.partition("\n") for piece in text.removeprefix("### ").split("\n### ")]
    return {name: code for name, _, code in pieces}


ORDINARY = _pieces()
"""Python as models write it, with nothing in it that anyone could mind; each piece asserts what it comes to."""

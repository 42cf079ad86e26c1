"""Parses Python code of others without showing its syntax warnings."""

from __future__ import annotations

import ast
import warnings

__all__ = ["UNREADABLE", "parsed", "parsed_expression"]

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What is raised for text that is no Python."""


def parsed(source: str) -> ast.Module:
    """The tree of code; what Python would warn of in it concerns nobody here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def parsed_expression(source: str) -> ast.expr:
    """The tree of an expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, mode="eval").body

"""Specs and tests that several modules use."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from coderoom.generation import FunctionSpec
from tests.judge.examples import frozen, test_of

__all__ = ["frozen", "in_database", "spec", "test_of"]


def spec(name: str, inputs: Sequence[str] = ("x",), needs: Sequence[str] = (), kind: str = "int") -> FunctionSpec:
    return FunctionSpec.model_validate(
        {
            "name": name,
            "purpose": "Something.",
            "inputs": [{"name": each, "type": kind} for each in inputs],
            "outputs": {"type": "int"},
            "dependencies": list(needs),
        }
    )


def in_database(folder: Path, statement: str, *values: Any) -> list[Any]:
    """Run a statement on the database of a cache, as somebody else might."""
    with closing(sqlite3.connect(folder / "journal.sqlite3")) as database, database:
        return database.execute(statement, values).fetchall()

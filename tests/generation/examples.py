"""Specs and tests that several modules use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coderoom.generation import FrozenTests, FunctionSpec, FunctionTest, freeze

__all__ = ["frozen", "spec", "test_of"]


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


def test_of(*names: str, **fields: Any) -> FunctionTest:
    return FunctionTest.model_validate({"name": names[0] if names else "one", **fields})


test_of.__test__ = False  # type: ignore[attr-defined]


def frozen(function: str, *tests: FunctionTest) -> FrozenTests:
    return freeze({function: tests})

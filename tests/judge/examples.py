"""Tests that several modules use."""

from __future__ import annotations

from typing import Any

from coderoom.judge import FrozenTests, FunctionTest, freeze


def test_of(*names: str, **fields: Any) -> FunctionTest:
    return FunctionTest.model_validate({"name": names[0] if names else "one", **fields})


test_of.__test__ = False  # type: ignore[attr-defined]


def frozen(function: str, *tests: FunctionTest) -> FrozenTests:
    return freeze({function: tests})

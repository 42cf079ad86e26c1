"""The forms of a value that is shown, by media types, as clients of notebooks get them."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest

from coderoom.sandbox.guest.bundles import DATA, bundle


class Rich:
    """A value with several forms, one of which is of its mimebundle too."""

    def __repr__(self) -> str:
        return "rich"

    def _repr_mimebundle_(self) -> Any:
        return {"text/html": "<b>bundle</b>", 1: "one"}, {"metadata": True}

    def _repr_html_(self) -> str:
        return "<b>method</b>"

    def _repr_png_(self) -> bytes:
        return b"png"

    def _repr_latex_(self) -> None:
        return None

    def _repr_json_(self) -> Any:
        raise SystemExit

    def _repr_svg_(self) -> object:
        return object()  # What cannot be sent is left out.


class Failing:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "forms"),
    [
        (1, {"text/plain": "1"}),
        ("x" * 2**21, {"text/plain": "'" + "x" * (2**20 - 1)}),
        (
            ["x", (1.5, math.nan), datetime.date(2026, 1, 2)],
            {
                "text/plain": "['x', (1.5, nan), datetime.date(2026, 1, 2)]",
                "application/json": ["x", [1.5, None], "2026-01-02"],
            },
        ),
        ({1: True}, {"text/plain": "{1: True}", "application/json": {"1": True}}),
        (Rich(), {"text/plain": "rich", "text/html": "<b>bundle</b>", "1": "one", "image/png": "cG5n"}),
        (Failing(), {"text/plain": "<Failing whose repr has failed: RuntimeError>"}),
        (Rich, {"text/plain": repr(Rich)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_forms_of_a_value(value: Any, forms: dict[str, Any]) -> None:
    assert bundle(value) == forms


def test_what_is_too_large_is_left_out() -> None:
    found = bundle(["x" * 1024 * 1024] * 13)
    assert found.keys() == {"text/plain"}


@pytest.mark.slow
def test_a_frame_has_its_columns() -> None:
    pandas = pytest.importorskip("pandas")
    found = bundle(pandas.DataFrame({"a": [1, 2], "b": [1.5, math.nan]}))
    assert found[DATA] == {"a": [1, 2], "b": [1.5, None]}
    assert "<table" in found["text/html"]


@pytest.mark.slow
def test_a_figure_that_cannot_be_drawn_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(1, 1))
    assert bundle(figure).keys() >= {"text/plain", "image/png"}
    figure.text(0, 0, "$\\nonsense$")
    assert bundle(figure).keys() == {"text/plain"}
    assert capsys.readouterr().err.startswith("[A figure could not be shown: ValueError: ")

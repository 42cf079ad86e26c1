"""How answers of models are read."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.generation import FunctionSpec, PythonLanguage
from coderoom.generation.replies import SPECS_KEYS, TESTS_KEYS, as_tests, code_in, listed, read_repair

from ..test_honesty import LARGE, NOISE

PYTHON = PythonLanguage()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LARGE else ())
        for name, answer in NOISE.items()
        if isinstance(answer, str)
    ],
)
def test_noise_is_neither_tests_nor_code_nor_a_repair(name: str) -> None:
    text = NOISE[name][:400_000]  # More is cut off before anything reads it.
    assert not listed(text, TESTS_KEYS, "median")
    assert code_in(text, "median", PYTHON) == ""
    assert read_repair(text, "median", PYTHON) is None


def test_what_is_nearly_json_is_read() -> None:
    assert listed(NOISE["json with comments"], SPECS_KEYS) == [{"name": "median"}]


SHIFT = FunctionSpec.model_validate(
    {
        "name": "shift",
        "purpose": "Move days.",
        "inputs": [{"name": "days", "type": "list[date]"}, {"name": "by", "type": "timedelta"}],
        "outputs": {"type": "set[date]", "description": ""},
    }
)
DAY, LATER = {"$date": "2024-01-31"}, {"$timedelta": [1, 0, 0]}


def read(error: str | None, days: Any, by: Any) -> dict[str, Any]:
    expected: dict[str, Any] = {"expected_output": []} if error is None else {"expected_error": error}
    (found,) = as_tests([{"inputs": {"days": days, "by": by}, **expected}], SHIFT, PYTHON)
    inputs: dict[str, Any] = found["inputs"]
    return inputs


@pytest.mark.parametrize("error", [None, "builtins.OverflowError", "TypeError", "AttributeError"])
def test_inputs_beside_one_of_a_wrong_type_are_what_the_spec_says(error: str | None) -> None:
    for wrong in (3, "soon", None, [1], {"days": 1}):
        assert read(error, ["2024-01-31"], wrong) == {"days": [DAY], "by": wrong}
        assert read(error, ["2024-01-31", wrong], [1, 0, 0]) == {"days": [DAY, wrong], "by": LATER}


@pytest.mark.parametrize("error", ["TypeError", "AttributeError"])
def test_inputs_of_which_any_could_be_the_wrong_one_stay_as_they_are(error: str) -> None:
    assert read(error, ["2024-01-31"], [1, 0, 0]) == {"days": ["2024-01-31"], "by": [1, 0, 0]}
    assert read(error, [DAY], [1, 0, 0]) == {"days": [DAY], "by": [1, 0, 0]}
    assert read(error, ["2024-01-31"], LATER) == {"days": ["2024-01-31"], "by": LATER}


def test_other_errors_say_nothing_of_types() -> None:
    assert read("OverflowError", ["2024-01-31"], [1, 0, 0]) == {"days": [DAY], "by": LATER}

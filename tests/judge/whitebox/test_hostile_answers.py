"""Whatever a process answers, it is read as an answer or as none, and what is said of it is a verdict."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coderoom.judge import FunctionTest, PythonHarness
from coderoom.judge.session import Answer, Seen, read_answer, verdict_on
from coderoom.outcome import Outcome

NAMES = """
value error after left types base message trace type fields name mixed why items dtype shape
$tuple $set $dict $object $namedtuple $enum $opaque $array $float $int $decimal $bytes $complex $datetime
"""
TESTS = [
    FunctionTest.model_validate({"name": "a test", "inputs": {"x": [1]}, **expectation})
    for expectation in (
        {"expected_output": {"$object": {"type": "P", "fields": {"x": [1.5, {"$set": [1]}]}}}},
        {"expected_output": [1, "a", None]},
        {"expected_error": "ValueError", "error_message": "no"},
        {"property": "result == after['x']"},
    )
]

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("\ud800")
values = st.recursive(
    leaves,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.sampled_from(NAMES.split()), parts, max_size=4),
    max_leaves=10,
)
texts = (
    st.dictionaries(st.sampled_from(NAMES.split()), values, max_size=5).map(json.dumps)
    | values.map(lambda value: json.dumps({"value": value, "after": {"x": value}}))
    | st.sampled_from(['{"value":' + "[" * depth + "]" * depth + "}" for depth in (199, 900, 100_000)])
    | st.text(max_size=30)
)


@settings(derandomize=True, deadline=None)
@given(texts | values, st.lists(values, min_size=4, max_size=4), st.sampled_from(TESTS))
def test_every_answer_gets_a_verdict(text: Any, about: list[Any], test: FunctionTest) -> None:
    answer = read_answer(text, 300_000, about)
    assert answer is None or isinstance(answer, Answer)
    if answer is not None and not answer.left:
        why = verdict_on(test, answer, PythonHarness())
        assert Seen(answer, why, Outcome.OK).passed is (why == "")
        assert len(why) < 2_000
        assert Seen(answer, why, Outcome.OK).said()

"""What a test may say, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from coderoom.errors import GenerationError
from coderoom.judge import changed
from coderoom.judge.cases import Step, content_key, problems_of_steps

from .examples import frozen, test_of


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "exactly one of call, assign, file is required; found: none"),
        ({"call": "f", "file": "a"}, "found: call and file"),
        ({"call": "f", "text": "a"}, "text belongs to file, not to call"),
        ({"assign": "x", "args": [1]}, "args belongs to call, not to assign"),
        ({"file": "/a"}, "is not a path in the folder of the test"),
        ({"file": "a/../../b"}, "is not a path in the folder of the test"),
        ({"file": "a", "bytes": "?"}, "bytes"),
        ({"call": "f", "args": [{"$name": "a b"}]}, "'a b' is not a name"),
        ({"call": "1f"}, "call"),
    ],
)
def test_steps_that_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Step(**fields)


def test_steps_are_written_without_what_they_do_not_use() -> None:
    assert Step(assign="x", value=None).model_dump() == {"assign": "x", "value": None}
    assert Step(call="shop.add", args=(0,), name="a").model_dump() == {"call": "shop.add", "args": (0,), "name": "a"}
    assert Step(file="a..b/c", text="t").model_dump() == {"file": "a..b/c", "text": "t"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "found: none"),
        ({"expected_output": 1, "property": "result"}, "found: expected_output and property"),
        ({"expected_error": "Exception"}, "matches nearly every error"),
        ({"expected_error": "a b"}, "is not an exception name"),
        ({"expected_output": 1, "error_message": "x"}, "error_message is allowed only with expected_error"),
        ({"expected_output": 1, "then": [{"assign": "x", "value": 1}]}, "one of the steps must be a call"),
        ({"expected_output": 1, "inputs": {"a b": 1}}, "inputs: "),
        ({"expected_output": 1, "rel": 1.1}, "rel"),
        ({"expected_output": None, "expected_error": None, "property": None}, "found: none"),
    ],
)
def test_tests_that_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        test_of(**fields)


def test_nulls_of_models_are_forgotten() -> None:
    two = {"expected_output": None, "expected_error": None}
    assert test_of(**two).expects == "output"
    error = test_of(**two | {"expected_error": "ValueError", "property": None, "rel": None, "setup": None})
    assert error == test_of(expected_error="ValueError")
    assert test_of(expected_output=None).model_dump().keys() == {"name", "kind", "inputs", "expected_output"}
    assert test_of(property="result > 0").expects == "property"


def test_what_a_property_sees() -> None:
    assert test_of(property="after['x'] == result").sees_after
    assert not test_of(property="after == result", inputs={"after": 1}).sees_after
    assert not test_of(property="result == 'after'").sees_after
    assert test_of(inputs={"x": {"$name": "f"}}, expected_output=1).has_steps
    assert test_of(setup=[{"file": "a"}], expected_output=1).has_steps
    assert not test_of(inputs={"x": 1}, expected_output=1).has_steps


def test_names_in_steps() -> None:
    test = test_of(
        setup=[{"call": "make", "name": "shop"}, {"assign": "shop.open", "value": 1}, {"assign": "n", "value": 2}],
        inputs={"x": {"$name": "n"}, "y": {"$name": "shop"}},
        then=[{"assign": "os.environ.HOME", "value": "/"}, {"call": "shop.total", "args": [{"$name": "result"}]}],
        expected_output=1,
    )
    assert problems_of_steps(test, ["make"]) == []
    found = problems_of_steps(test, ["f"])
    assert [each.partition(";")[0] for each in found] == ["setup[0]: 'make' is unknown"]
    bad = test_of(
        setup=[
            {"call": "len", "args": [{"$name": "open"}]},
            {"call": "Shop", "name": "s"},
            {"assign": "t.x", "value": 1},
        ],
        inputs={"x": {"$name": "result"}},
        then=[{"call": "s.add"}, {"call": "z"}],
        expected_output=1,
    )
    assert [each.partition(" is unknown")[0] for each in problems_of_steps(bad, ["f"])] == [
        "setup[0]: 'open'",
        "setup[2]: 't'",
        "inputs: 'result'",
        "then[1]: 'z'",
    ]


def test_only_the_content_makes_the_key() -> None:
    one = test_of(name="a", kind="edge", expected_output=1)
    assert content_key(one) == content_key(test_of(name="b", expected_output=1))
    assert content_key(one) != content_key(test_of(name="a", expected_output=1, rel=0.1))


def test_changes_of_frozen_tests() -> None:
    tests = frozen("f", test_of(name="a", expected_output=1), test_of(name="b", expected_output=2))
    other = test_of(name="b", expected_output=3)
    new = changed(tests, "f", "b", other, by="me", reason="why")
    assert [each.expected_output for each in new.tests["f"]] == [1, 3]
    assert (new.changes[0].before, new.changes[0].after) == (tests.tests["f"][1], other)
    assert (new.changes[0].hash_before, new.changes[0].hash_after) == (tests.hash, new.hash)
    more = changed(new, "f", "c", test_of(name="c", expected_output=4), by="me", reason="why")
    assert (more.count, len(more.changes), more.changes[1].before) == (3, 2, None)
    assert [each.name for each in changed(more, "f", "a", None, by="me", reason="why").tests["f"]] == ["b", "c"]
    with pytest.raises(GenerationError, match="is the same as the old one"):
        changed(new, "f", "b", other, by="me", reason="why")

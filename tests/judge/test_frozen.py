from __future__ import annotations

from typing import Any

import pytest

from coderoom.errors import GenerationError
from coderoom.judge import FrozenTests, changed, freeze

from .examples import frozen, test_of

BASE: dict[str, Any] = {
    "name": "a",
    "kind": "normal",
    "inputs": {"x": [1, {"k": 2}]},
    "expected_output": [1],
    "setup": [{"file": "a"}],
}


def test_the_same_tests_have_the_same_hash() -> None:
    one = frozen("f", test_of(**BASE))
    other = frozen("f", test_of(**{**dict(reversed(BASE.items())), "inputs": {"x": [1, {"k": 2}]}}))
    assert one.hash == other.hash
    assert len(one.hash) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"kind": "edge"},
        {"inputs": {"x": [1, {"k": 3}]}},
        {"inputs": {"x": [1, {"j": 2}]}},
        {"inputs": {"y": [1, {"k": 2}]}},
        {"expected_output": [1.0]},
        {"expected_output": None},
        {"expected_output": {"$tuple": [1]}},
        {"setup": [{"file": "b"}]},
        {"setup": []},
        {"rel": 1e-8},
        {"abs": 1e-8},
        {"exact_types": True},
    ],
    ids=str,
)
def test_any_change_makes_another_hash(change: dict[str, Any]) -> None:
    assert frozen("f", test_of(**BASE)).hash != frozen("f", test_of(**{**BASE, **change})).hash


def test_what_is_expected_makes_another_hash() -> None:
    hashes = {
        frozen("f", test_of(**each)).hash
        for each in (
            {"expected_output": None},
            {"expected_output": "ValueError"},
            {"expected_error": "ValueError"},
            {"property": "result"},
        )
    }
    assert len(hashes) == 4


def test_the_function_and_the_order_count() -> None:
    one, two = test_of("a", expected_output=1), test_of("b", expected_output=1)
    hashes = {frozen("f", one, two).hash, frozen("f", two, one).hash, frozen("g", one, two).hash, frozen("f", one).hash}
    assert len(hashes) == 4


def test_a_change_in_place_is_seen() -> None:
    tests = frozen("f", test_of(**BASE))
    tests.tests["f"][0].inputs["x"].append(3)
    with pytest.raises(GenerationError, match="not those that were frozen"):
        tests.verify()


def test_whoever_has_the_tests_cannot_change_the_frozen_ones() -> None:
    test = test_of(**BASE)
    tests = frozen("f", test)
    test.inputs["x"].append(3)
    tests.verify()


def test_frozen_tests_come_back_from_json() -> None:
    tests = changed(frozen("f", test_of(**BASE)), "f", "b", test_of("b", expected_output=None), by="me", reason="more")
    again = FrozenTests.model_validate_json(tests.model_dump_json())
    again.verify()
    assert again == tests


@pytest.mark.parametrize("tests", [{}, {"f": []}])
def test_there_has_to_be_a_test(tests: Any) -> None:
    with pytest.raises(GenerationError, match="no tests"):
        freeze(tests)


def test_two_tests_of_a_name_are_refused() -> None:
    with pytest.raises(GenerationError, match="same name"):
        frozen("f", test_of("a", expected_output=1), test_of("a", expected_output=2))


class TestChanged:
    def test_a_change_is_recorded(self) -> None:
        before, after = test_of("a", expected_output=1), test_of("a", expected_output=2)
        tests = frozen("f", before, test_of("b", expected_output=1))
        new = changed(tests, "f", "a", after, by="reviewer", reason="the spec says 2")
        (change,) = new.changes
        assert (change.function, change.test, change.by, change.reason) == ("f", "a", "reviewer", "the spec says 2")
        assert (change.before, change.after) == (before, after)
        assert (change.hash_before, change.hash_after) == (tests.hash, new.hash)
        assert tests.hash != new.hash
        assert tests.tests["f"][0].expected_output == 1
        assert [each.name for each in new.tests["f"]] == ["a", "b"]
        new.verify()

    def test_tests_come_and_go(self) -> None:
        tests = frozen("f", test_of("a", expected_output=1))
        more = changed(tests, "f", "b", test_of("b", expected_output=1), by="me", reason="an edge")
        back = changed(more, "f", "b", None, by="me", reason="no edge")
        assert more.count == 2
        assert back.hash == tests.hash
        assert [each.before is None for each in back.changes] == [True, False]
        assert back.changes[1].after is None

    def test_nothing_is_no_change(self) -> None:
        tests = frozen("f", test_of("a", expected_output=1))
        for name, after in (("a", test_of("a", expected_output=1)), ("b", None)):
            with pytest.raises(GenerationError, match="is the same as the old one"):
                changed(tests, "f", name, after, by="me", reason="none")

    def test_the_last_one_cannot_go(self) -> None:
        with pytest.raises(GenerationError, match="no tests"):
            changed(frozen("f", test_of("a", expected_output=1)), "f", "a", None, by="me", reason="it fails")

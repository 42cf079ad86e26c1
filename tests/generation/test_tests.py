from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from coderoom.generation import FunctionTest, GenerationError, read_tests

from .examples import spec, test_of


class TestForm:
    def test_a_dump_has_the_keys_of_the_form(self) -> None:
        data: dict[str, Any] = {"name": "a", "inputs": {"param": "v"}, "expected_output": [1]}
        data["setup"] = ({"call": "f", "args": [1], "name": "x"}, {"assign": "y", "value": None}, {"file": "a"})
        assert test_of(**data).model_dump(mode="json") == {**data, "setup": [*data["setup"]], "kind": "normal"}

    @pytest.mark.parametrize(
        "data",
        [
            {"expected_output": None},
            {"expected_output": {"$tuple": [1]}, "rel": 0.1},
            {"expected_error": "ValueError", "error_message": "no", "kind": "error"},
            {"property": "result == x", "inputs": {"x": {"$set": []}}, "exact_types": True},
        ],
        ids=str,
    )
    def test_it_comes_back_from_json(self, data: dict[str, Any]) -> None:
        test = test_of(**data)
        again = FunctionTest.model_validate_json(test.model_dump_json())
        assert again == test
        assert again.expects == test.expects
        assert again.model_dump_json() == test.model_dump_json()

    def test_nulls_are_what_is_left_open(self) -> None:
        test = test_of(expected_output=None, expected_error="ValueError", property=None, setup=None, rel=None)
        assert test.expects == "error"
        assert test_of(expected_output=None, setup=None).expects == "output"

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            ({}, "exactly one of .* found: none"),
            ({"expected_error": None}, "found: none"),
            (
                {"expected_output": None, "expected_error": None, "property": None},
                "for the result None, write expected_output alone",
            ),
            ({"expected_error": "Exception"}, "'Exception' matches nearly every error"),
            ({"expected_error": "BaseException"}, "'BaseException' matches nearly every error"),
            ({"expected_output": 1, "property": "result"}, "expected_output and property"),
            ({"expected_output": {"$nope": 1}}, r"expected_output: '\$nope' is not a tag"),
            ({"expected_output": float("nan")}, "is not JSON"),
            ({"expected_output": 1, "inputs": {"x": [{"$set": 1}]}}, r"inputs\['x'\]\[0\]"),
            ({"expected_output": 1, "inputs": {"class": 1}}, "keyword"),
            ({"expected_error": "Value Error"}, "is not an exception name"),
            ({"expected_output": 1, "error_message": "x"}, "only with expected_error"),
            ({"property": "result ="}, "property: it is not valid Python"),
            ({"property": "True"}, "does not use result"),
            ({"property": "result == y"}, "unknown name 'y'"),
            ({"property": "result is not x", "inputs": {"x": [1]}}, "it sees copies"),
            ({"property": "list(set(result)) == result"}, "compare with sorted"),
            ({"property": "result == [*{each for each in result}]"}, "compare with sorted"),
            ({"expected_output": 1, "rel": -1}, "rel"),
            ({"expected_output": 1, "verdict": True}, "verdict"),
            ({"expected_output": 1, "kind": "hard"}, "kind"),
        ],
        ids=str,
    )
    def test_what_is_wrong_is_refused(self, data: dict[str, Any], said: str) -> None:
        with pytest.raises(ValidationError, match=said):
            test_of(**data)

    @pytest.mark.parametrize(
        "text",
        [
            "result == x",
            "all(a <= b for a, b in zip(result, result[1:]))",
            "[y for y in x if y in result] == sorted(x, key=lambda z: -z)",
            "math.isclose(result, sum(x)) and (n := len(x)) == n",
            "result == {k: v for k, v in x}",
            "set(result) == set(x) and sorted(set(result)) == result and len(list(set(x))) == len(result)",
        ],
    )
    def test_properties_may_have_names_of_their_own(self, text: str) -> None:
        test_of(property=text, inputs={"x": []})


class TestSteps:
    @pytest.mark.parametrize(
        ("step", "said"),
        [
            ("x = 1", "setup[0]: Input should be a valid dictionary or instance of Step"),
            ({}, "exactly one of call, assign, file is required; found: none"),
            ({"call": "f", "file": "a"}, "found: call and file"),
            ({"call": "f", "value": 1}, "value belongs to assign, not to call"),
            ({"call": "f.__code__"}, "String should match pattern"),
            ({"call": "g"}, "'g' is unknown; a step may use 'f'"),
            ({"call": "f", "args": [{"$name": "y"}]}, "'y' is unknown"),
            ({"call": "f", "args": [{"$name": "f.__globals__"}]}, "is not a name"),
            ({"assign": "x.y", "value": 1}, "'x' is unknown"),
            ({"file": "/etc/passwd"}, "is not a path in the folder of the test"),
            ({"file": "a/../../b"}, "is not a path in the folder of the test"),
            ({"file": "a", "bytes": "?"}, "this is not valid base64"),
        ],
    )
    def test_what_is_wrong_is_said(self, step: Any, said: str) -> None:
        test = {"name": "a", "inputs": {"x": 1}, "expected_output": 1, "setup": [step]}
        with pytest.raises(GenerationError, match=re.escape(said)):
            read_tests({"f": [test]}, [spec("f")])

    def test_the_result_is_known_after_the_call_only(self) -> None:
        then = [{"call": "result.add", "args": [1]}]
        test = {"name": "a", "inputs": {"x": 1}, "expected_output": 1}
        assert read_tests({"f": [{**test, "then": then}]}, [spec("f")])
        with pytest.raises(GenerationError, match=r"'result\.add' is unknown"):
            read_tests({"f": [{**test, "setup": then}]}, [spec("f")])
        with pytest.raises(GenerationError, match="then: one of the steps must be a call"):
            read_tests({"f": [{**test, "then": [{"file": "a"}]}]}, [spec("f")])


class TestAgainstTheFunction:
    def test_arguments_have_to_be_those_of_the_function(self) -> None:
        test = {"name": "a", "inputs": {"x": 1, "z": 1}, "expected_output": 1}
        with pytest.raises(GenerationError, match=r"no argument 'z'; it has 'x', 'y'\.\n.*'y' is not given"):
            read_tests({"f": [test]}, [spec("f", ["x", "y"])])

    @pytest.mark.parametrize("kind", ["int = 3", "Optional[int]", "int, default 3"])
    def test_what_has_a_default_may_be_left_out(self, kind: str) -> None:
        assert read_tests({"f": [{"name": "a", "expected_output": 1}]}, [spec("f", ["x"], kind=kind)])

    def test_every_mistake_is_listed(self) -> None:
        data = {
            "f": [
                {"name": "a", "inputs": {}, "expected_output": 1},
                {"name": "a", "inputs": {"x": 1}, "expected_output": 1},
            ],
            "g": [],
        }
        with pytest.raises(GenerationError) as caught:
            read_tests(data, [spec("f"), spec("h")])
        assert str(caught.value).splitlines() == [
            "tests.f[0]: the argument 'x' is not given.",
            "tests.f[1]: another test of this function has the same name 'a'.",
            "tests.g: there is no such function; there are 'f', 'h'.",
            "tests: there are none for 'h'.",
        ]

    def test_mistakes_in_the_form_have_their_place(self) -> None:
        with pytest.raises(GenerationError, match=r"tests\.f\[1\]: exactly one of"):
            read_tests({"f": [{"name": "a", "inputs": {"x": 1}, "expected_output": 1}, {"name": "b"}]}, [spec("f")])

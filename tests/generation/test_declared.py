from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from coderoom.generation import AICodeGenerator, JavaScriptLanguage, PythonLanguage, Solution, freeze
from coderoom.sandbox import Sandbox

from .scripted import ScriptedModel, test

PYTHON = PythonLanguage()


def of_type(data: Any, declared: str) -> Any:
    return PYTHON.as_declared(data, declared)


@pytest.mark.parametrize(
    ("declared", "data", "expected"),
    [
        ("set[int]", [1, 2], {"$set": [1, 2]}),
        ("set", [], {"$set": []}),
        ("typing.Set[str]", ["a"], {"$set": ["a"]}),
        ("frozenset[int]", [1], {"$frozenset": [1]}),
        ("list[set[int]]", [[1, 1, 2], [2]], [{"$set": [1, 2]}, {"$set": [2]}]),
        ("tuple[int, str]", [1, "a"], {"$tuple": [1, "a"]}),
        ("tuple[int, ...]", [1, 2, 3], {"$tuple": [1, 2, 3]}),
        ("tuple[()]", [], {"$tuple": []}),
        ("Tuple", [1], {"$tuple": [1]}),
        ("dict[int, int]", {"1": 2, "-3": 4}, {"$dict": [[1, 2], [-3, 4]]}),
        ("dict[float, str]", {"1.5": "a"}, {"$dict": [[1.5, "a"]]}),
        ("Dict[bool, int]", {"true": 1, "False": 0}, {"$dict": [[True, 1], [False, 0]]}),
        ("dict[tuple[int, int], str]", {"(0, 1)": "a"}, {"$dict": [[{"$tuple": [0, 1]}, "a"]]}),
        ("dict[date, int]", {"2024-01-31": 1}, {"$dict": [[{"$date": "2024-01-31"}, 1]]}),
        ("bytes", "not base64!", {"$bytes": "bm90IGJhc2U2NCE="}),
        ("bytes", "", {"$bytes": ""}),
        ("bytes", "b'\\x00hi'", {"$bytes": "AGhp"}),
        ("bytes", [104, 105], {"$bytes": "aGk="}),
        ("bytearray", [104, 105], {"$bytearray": "aGk="}),
        ("date", "2024-01-31", {"$date": "2024-01-31"}),
        ("datetime.date", "2024-01-31", {"$date": "2024-01-31"}),
        ("datetime", "2024-01-31T10:00:00", {"$datetime": "2024-01-31T10:00:00"}),
        ("datetime.datetime", "2024-01-31 10:00", {"$datetime": "2024-01-31T10:00:00"}),
        ("time", "12:30", {"$time": "12:30:00"}),
        ("timedelta", [1, 30, 0], {"$timedelta": [1, 30, 0]}),
        ("Decimal", "1.10", {"$decimal": "1.10"}),
        ("decimal.Decimal", 1.1, {"$decimal": "1.1"}),
        ("Decimal", 3, {"$decimal": "3"}),
        ("Fraction", "1/3", {"$fraction": [1, 3]}),
        ("Fraction", [1, 3], {"$fraction": [1, 3]}),
        ("Fraction", 2, {"$fraction": [2, 1]}),
        ("complex", [1, -2.5], {"$complex": [1.0, -2.5]}),
        ("complex", "1+2j", {"$complex": [1.0, 2.0]}),
        ("float", "-Infinity", {"$float": "-inf"}),
        ("float", "NaN", {"$float": "nan"}),
    ],
)
def test_what_json_cannot_show_becomes_what_the_spec_says(declared: str, data: Any, expected: Any) -> None:
    assert of_type(data, declared) == expected
    assert of_type(expected, declared) == expected


def test_an_expected_integer_becomes_a_float_where_that_is_declared() -> None:
    declared = "dict[str, list[float] | int]"
    assert repr(PYTHON.as_declared({"a": [1, 2.5]}, declared, result=True)) == "{'a': [1.0, 2.5]}"
    assert repr(PYTHON.as_declared({"a": [1, 2.5]}, declared)) == "{'a': [1, 2.5]}"
    assert PYTHON.as_declared(10**17 + 1, "float", result=True) == 10**17 + 1


@pytest.mark.parametrize(
    ("declared", "data", "expected"),
    [
        ("list[tuple[int, int]]", [[1, 2], [3, 4]], [{"$tuple": [1, 2]}, {"$tuple": [3, 4]}]),
        ("dict[str, set[int]]", {"a": [1]}, {"a": {"$set": [1]}}),
        ("dict[int, list[set[int]]]", {"1": [[1]]}, {"$dict": [[1, [{"$set": [1]}]]]}),
        ("set[tuple[int, int]]", [[1, 2]], {"$set": [{"$tuple": [1, 2]}]}),
        ("tuple[int, set[int]]", {"$tuple": [1, [2]]}, {"$tuple": [1, {"$set": [2]}]}),
        ("Sequence[date]", ["2024-01-31"], [{"$date": "2024-01-31"}]),
        ("Optional[set[int]]", [1], {"$set": [1]}),
        ("Optional[set[int]]", None, None),
        ("set[int] | None", [1], {"$set": [1]}),
        ("None | list[set[int]]", [[1]], [{"$set": [1]}]),
        ("Union[int, tuple[int, int], None]", [1, 2], {"$tuple": [1, 2]}),
        ("tuple[int, int] | tuple[int, ...]", [1, 2], {"$tuple": [1, 2]}),
        ("tuple[int, int] | tuple[int, int, int]", [1, 2], {"$tuple": [1, 2]}),
        ("Annotated[set[int], 'sorted']", [1], {"$set": [1]}),
        ("set[int] = None", [1], {"$set": [1]}),
        ("list[Decimal | None]", [None, "1.5"], [None, {"$decimal": "1.5"}]),
    ],
)
def test_at_any_depth(declared: str, data: Any, expected: Any) -> None:
    assert of_type(data, declared) == expected


@pytest.mark.parametrize(
    ("declared", "data"),
    [
        # It fits as it is.
        ("list[int]", [1, 2]),
        ("Sequence[int]", [1, 2]),
        ("Iterable[str]", ["a"]),
        ("dict[str, int]", {"1": 2}),
        ("dict", {"1": 2}),
        ("dict[int | str, int]", {"1": 2}),
        ("str", "2024-01-31"),
        ("date | str", "2024-01-31"),
        ("float", 1),
        ("complex", 1),
        ("int", True),
        ("Any", [1]),
        ("object", [1]),
        ("list[int] | set[int]", [1]),
        ("set[int]", {"$frozenset": [1]}),
        ("list[int]", {"$tuple": [1]}),
        ("date", {"$datetime": "2024-01-31T10:00:00"}),
        # It could be several things.
        ("Union[tuple[int, int], set[int]]", [1, 2]),
        ("date | datetime", "2024-01-31"),
        ("bytes", "aGk="),
        ("bytes", "data"),
        ("timedelta", 90),
        ("Fraction", 0.5),
        ("set[int] | Point", [1]),
        # It cannot be of the type.
        ("int", "3"),
        ("str", 3),
        ("list[int]", "3"),
        ("set[int]", "abc"),
        ("set[list[int]]", [[1]]),
        ("set[int]", {"1": 2}),
        ("tuple[int, str]", [1, "a", 2]),
        ("dict[int, int]", {"a": 1}),
        ("dict[int, int]", {"1.5": 1}),
        ("dict[float, int]", {"1": 1, "1.0": 2}),
        ("date", "tomorrow"),
        ("date", 3),
        ("bytes", "é"),
        ("bytes", [300]),
        ("Decimal", "many"),
        ("Fraction", "1/0"),
        ("Fraction", "1e999999999"),
        ("float", "1.5"),
        # It is no type.
        ("set of integers", [1]),
        ("", [1]),
        ("set[", [1]),
        ("'set[int]'", [1]),
        ("set[int], or None", [1]),
        ("__import__('os').abort()", [1]),
        ("Literal['a']", [1]),
        ("set" + "[set" * 300 + "]" * 300, [1]),
        ("|".join(["set[int]"] * 400), [1]),
        # It is no data, which others tell of.
        ("set[int]", {"$set": 3}),
        ("set[int]", [{"$nope": 1}]),
        ("dict[int, int]", {"1": 1, "$x": 2}),
    ],
)
def test_everything_else_stays_as_it_is(declared: str, data: Any) -> None:
    assert of_type(data, declared) == data


def test_other_languages_have_other_types() -> None:
    assert JavaScriptLanguage().as_declared([1], "set[int]") == [1]


@pytest.mark.parametrize(
    ("declared", "data", "letters"),
    [
        ("bytes", "aGk=", "aGk="),
        ("bytearray", "data", "data"),
        ("list[bytes | None]", [None, "!", "aGk="], "aGk="),
        ("dict[bytes, int]", {"aGk=": 1}, "aGk="),
        ("Optional[tuple[set[int], bytes]]", [[1], "aGk="], "aGk="),
    ],
)
def test_text_that_may_be_base64_is_asked_about(declared: str, data: Any, letters: str) -> None:
    said = PYTHON.unclear(data, declared)
    assert said.startswith(f"{letters!r} is ambiguous for the type")
    assert f'{{"$bytes": "{letters}"}}' in said
    assert f'{{"$bytes": "{b64encode(letters.encode()).decode()}"}}' in said
    assert of_type(data, declared) == data


@pytest.mark.parametrize(
    ("declared", "data"),
    [
        ("bytes", "not base64!"),
        ("bytes", {"$bytes": "aGk="}),
        ("bytes | str", "aGk="),
        ("str", "aGk="),
        ("bytes", 3),
        ("bytes, as it were", "aGk="),
        ("bytes", {"$nope": "aGk="}),
    ],
)
def test_nothing_else_is_asked_about(declared: str, data: Any) -> None:
    assert PYTHON.unclear(data, declared) == ""


GROUP = {
    "name": "group",
    "purpose": "Group days.",
    "inputs": [{"name": "days", "type": "dict[int, list[date]]"}, {"name": "only", "type": "set[int]"}],
    "outputs": {"type": "dict[int, set[tuple[int, int]]]", "description": ""},
}
CODE = """
from datetime import date

def group(days, only):
    if not isinstance(only, set):
        raise TypeError("only")
    assert all(type(each) is int for each in days)
    return {key: {(day.month, day.day) for day in each} for key, each in days.items() if key in only}
"""


async def solved(sandbox: Sandbox, tests: list[Any], **more: Any) -> Solution:
    model = ScriptedModel([GROUP], {"group": tests}, {"group": CODE}, more)
    return await AICodeGenerator(model, sandbox=sandbox, cache=False).generate_solution("Group days.")


DAYS = {"1": ["2024-01-31"], "2": []}


@pytest.mark.slow
async def test_tests_in_plain_json_are_right_and_frozen_as_what_they_mean(sandbox: Sandbox) -> None:
    by_property = {"name": "keys", "inputs": {"days": DAYS, "only": [2]}, "property": "set(result) == only & set(days)"}
    not_a_set = {"name": "list", "inputs": {"days": DAYS, "only": [2]}, "expected_error": "TypeError"}
    solution = await solved(sandbox, [test("one", {"1": [[1, 31]]}, days=DAYS, only=[1]), by_property, not_a_set])
    assert solution.missing == []
    assert solution.all_tests_passed
    first, second, third = solution.tests["group"]
    assert first.inputs["only"] == {"$set": [1]}
    assert first.expected_output == {"$dict": [[1, {"$set": [{"$tuple": [1, 31]}]}]]}
    assert second.inputs["days"] == {"$dict": [[1, [{"$date": "2024-01-31"}]], [2, []]]}
    assert third.inputs["only"] == [2]
    assert solution.tests_hash == freeze(solution.tests).hash


SIZE = {
    "name": "size",
    "purpose": "Count.",
    "inputs": [{"name": "data", "type": "bytes"}],
    "outputs": {"type": "int", "description": ""},
}


def size(name: str, expected: int, data: Any) -> dict[str, Any]:
    return test(name, expected, data=data)


async def counted(sandbox: Sandbox, answers: list[Any], repair: Any = "No.") -> tuple[Solution, ScriptedModel]:
    code = "def size(data):\n    return len(data) if isinstance(data, bytes) else -1"
    model = ScriptedModel([SIZE], {"size": answers}, {"size": code}, {"size": repair})
    generator = AICodeGenerator(model, sandbox=sandbox, cache=False, strength=False)
    solution = await generator.generate_solution("Count.")
    return solution, model


SOME = [size("none", 0, ""), size("three", 3, [1, 2, 3]), size("text", 4, "a b!")]


async def test_a_test_with_text_that_may_be_base64_is_sent_back(sandbox: Sandbox) -> None:
    right = [*SOME, size("hi", 2, {"$bytes": "aGk="})]
    solution, model = await counted(sandbox, [{"tests": [*SOME, size("hi", 2, "aGk=")]}, {"tests": right}])
    assert solution.all_tests_passed, solution.missing
    assert model.count("tests", "size") == 2
    assert "tests[3]: inputs['data']: 'aGk=' is ambiguous for the type" in model.questions[2]
    assert [each.inputs["data"] for each in solution.tests["size"]][3] == {"$bytes": "aGk="}


async def test_it_is_left_out_where_that_is_not_said(sandbox: Sandbox) -> None:
    solution, _ = await counted(sandbox, [{"tests": [*SOME, size("hi", 2, "aGk=")]}])
    assert [each.name for each in solution.tests["size"]] == ["none", "three", "text"]
    assert any("'aGk=' is ambiguous for the type" in each for each in solution.warnings)


async def test_a_test_is_not_changed_to_such_text(sandbox: Sandbox) -> None:
    repair = {"wrong": "test", "reason": "it is base64", "test": size("none", 2, "aGk=")}
    solution, model = await counted(sandbox, [size("none", 1, ""), *SOME[1:]], repair)
    assert not solution.all_tests_passed
    assert solution.test_changes == ()
    assert (
        "the test cannot be changed like this: inputs['data']: 'aGk=' is ambiguous for the type" in model.questions[-1]
    )


SHIFT = {
    "name": "shift",
    "purpose": "Move days.",
    "inputs": [{"name": "days", "type": "list[date]"}, {"name": "by", "type": "timedelta"}],
    "outputs": {"type": "set[date]", "description": ""},
}


@pytest.mark.slow
async def test_a_test_of_a_wrong_type_is_right_though_others_need_to_be_read(sandbox: Sandbox) -> None:
    code = (
        "def shift(days, by):\n"
        "    moved = {day.replace() + by for day in days}\n"  # A text has another replace().
        "    return moved"
    )
    tests = [
        {"name": "one", "inputs": {"days": ["2024-01-31"], "by": [1, 0, 0]}, "expected_output": ["2024-02-01"]},
        {"name": "none", "inputs": {"days": [], "by": [1, 0, 0]}, "expected_output": []},
        {"name": "far", "inputs": {"days": ["2024-01-31"], "by": [10**7, 0, 0]}, "expected_error": "OverflowError"},
        {"name": "no time", "inputs": {"days": ["2024-01-31"], "by": 3}, "expected_error": "TypeError",
         "error_message": "'datetime.date' and 'int'"},
    ]  # fmt: skip
    model = ScriptedModel([SHIFT], {"shift": tests}, {"shift": code})
    solution = await AICodeGenerator(model, sandbox=sandbox, cache=False).generate_solution("Move days.")
    assert solution.all_tests_passed, solution.missing


async def test_bytes_of_a_wrong_type_are_no_question(sandbox: Sandbox) -> None:
    wrong = {"name": "text", "inputs": {"data": "aGk="}, "expected_error": "TypeError"}
    _, model = await counted(sandbox, [{"tests": [*SOME, wrong]}])
    assert model.count("tests", "size") == 1


@pytest.mark.slow
async def test_a_test_that_is_changed_is_read_in_the_same_way(sandbox: Sandbox) -> None:
    some = [test(name, {}, days=DAYS, only=only) for name, only in (("one", [1]), ("none", []), ("three", [3]))]
    remedy = {"wrong": "test", "reason": "day 31", "test": test("one", {"1": [[1, 31]]}, days=DAYS, only=[1])}
    solution = await solved(sandbox, some, group=remedy)
    assert [each.passed for each in solution.test_results] == [True] * 3
    assert solution.tests["group"][0].inputs["only"] == {"$set": [1]}

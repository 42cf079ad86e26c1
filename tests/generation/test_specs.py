from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coderoom.errors import CodeRoomError
from coderoom.generation import FunctionSpec, GenerationError, order, read_specs

from .examples import spec


def test_a_dump_has_the_keys_of_the_form() -> None:
    data = {
        "name": "function_name",
        "purpose": "What this function does",
        "inputs": [{"name": "param", "type": "str"}],
        "outputs": {"type": "list", "description": "Return value"},
        "dependencies": [],
        "complexity": "simple",
    }
    assert FunctionSpec.model_validate(data).model_dump(mode="json") == data


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "two words"}, "is not a valid identifier"),
        ({"name": "class"}, "keyword"),
        ({"name": "__init__"}, "underscores"),
        ({"name": "é"}, "is not a valid identifier"),
        ({"inputs": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}, "'a' of 'f' is listed twice"),
        ({"inputs": [{"name": "1", "type": "int"}]}, "is not a valid identifier"),
        ({"dependencies": ["f"]}, "its own dependencies"),
        ({"dependencies": ["g", "g"]}, "twice"),
        ({"complexity": "easy"}, "simple"),
        ({"purpose": ""}, "purpose"),
        ({"more": 1}, "more"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named_with_its_place(change: dict[str, Any], said: str) -> None:
    good = spec("f").model_dump()
    with pytest.raises(GenerationError, match=said) as caught:
        read_specs([good, {**good, **change}])
    assert "specs[1]" in str(caught.value) or "twice" in str(caught.value)
    assert isinstance(caught.value, CodeRoomError)


class TestOrder:
    def test_layers_can_be_written_at_the_same_time(self) -> None:
        specs = [spec("main", needs=["a", "b"]), spec("b", needs=["c"]), spec("a"), spec("c")]
        assert [[each.name for each in layer] for layer in order(specs)] == [["a", "c"], ["b"], ["main"]]

    def test_a_circle_is_named(self) -> None:
        specs = [spec("a", needs=["b"]), spec("b", needs=["c"]), spec("c", needs=["a"]), spec("d")]
        with pytest.raises(GenerationError, match=r"cycle: (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c)\."):
            order(specs)

    @pytest.mark.parametrize(
        ("specs", "said"),
        [
            ([], "no function"),
            ([spec("a"), spec("a")], "'a' is listed twice"),
            (
                [spec("a", needs=["b", "c"]), spec("d")],
                "'a' depends on 'b', 'c', which is not among the functions 'a', 'd'",
            ),
            ([spec(f"f{number}") for number in range(300)], "300 functions"),
        ],
    )
    def test_other_mistakes(self, specs: list[FunctionSpec], said: str) -> None:
        with pytest.raises(GenerationError, match=said):
            order(specs)

    @given(st.lists(st.sets(st.integers(0, 12), max_size=4), min_size=1, max_size=12))
    def test_nothing_comes_before_what_it_needs(self, graph: list[set[int]]) -> None:
        specs = [
            spec(f"f{number}", needs=[f"f{other}" for other in sorted(needs) if other < number])
            for number, needs in enumerate(graph)
        ]
        seen: set[str] = set()
        for layer in order(specs):
            assert all(set(each.dependencies) <= seen for each in layer)
            seen |= {each.name for each in layer}
        assert len(seen) == len(specs)

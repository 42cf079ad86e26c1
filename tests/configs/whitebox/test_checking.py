from __future__ import annotations

from typing import Any

from tests.configs.test_config_schemas import Both, Bound, Closed, Free, Names


def test_keys_by_name_and_alias() -> None:
    from coderoom.configs.components import alternatives, fields_by_key, item_alternatives, value_alternatives

    assert fields_by_key(Both) == {"aliased": "aliased", "theAlias": "aliased"}
    assert alternatives(Bound) == [int]
    assert alternatives(Free) == [Any]
    assert alternatives(Names) == [dict[str, Closed]]
    assert item_alternatives([list[int | str], set[float], int]) == [int, str, float]
    assert value_alternatives([int]) is None
    assert value_alternatives([dict]) == []

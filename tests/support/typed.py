"""Values of the types that cross the wall with their type."""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import strategies as st

__all__ = ["type_tree", "values"]

zones = st.just(datetime.UTC) | st.just(datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
hashable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.times()
    | st.datetimes(timezones=st.none() | zones)
    | st.timedeltas()
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
values = st.recursive(
    hashable | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(hashable, max_size=4)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.dictionaries(st.text() | st.just("$tuple"), inner, max_size=4)
    ),
    max_leaves=15,
)


def type_tree(value: Any) -> Any:
    if isinstance(value, dict):
        return [(type_tree(key), type_tree(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [type_tree(item) for item in value]
    return type(value)

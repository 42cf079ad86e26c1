# ruff: noqa: E501 (values, several to a line)
"""The comparison in files for pytest."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from coderoom.generation import compare, encode
from coderoom.generation.guest import same as inside
from coderoom.generation.languages.python.pytest_file import Literals

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.floats(), st.sampled_from([0.1 + 0.2, 0.3, 1e20, 10**20, 2**53]), st.text("ab", max_size=2),
    st.binary(max_size=2), st.complex_numbers(), st.decimals().filter(lambda number: not number.is_snan()), st.fractions(), st.datetimes(), st.dates(), st.timedeltas(),
)  # fmt: skip
KEYS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.text("ab$", max_size=2),
    st.tuples(st.integers(0, 1), st.booleans()),
    st.frozensets(st.integers(0, 2), max_size=2),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), st.dictionaries(KEYS, inner, max_size=3),
        st.sets(KEYS | st.floats(0, 1), max_size=3), st.frozensets(KEYS, max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(expected=VALUES, actual=VALUES, exact=st.booleans(), rel=st.sampled_from([0, 1e-9, 0.5]))
@example([True], [1], False, 1e-9)
@example({1.0, 2}, {1, 2.0000000001}, False, 1e-9)
@example((1, [2]), [1, (2,)], False, 0)
def test_the_helper_says_what_the_comparison_says(expected: Any, actual: Any, exact: bool, rel: float) -> None:
    for other in (actual, expected):
        wanted = encode(expected)
        literal = eval(
            Literals().expected(wanted),
            {**vars(inside), **{name: __import__(name) for name in ("datetime", "decimal", "fractions")}},
        )
        said = compare(wanted, encode(other), rel=rel, exact_types=exact).equal
        assert inside.same(other, literal, rel=rel, exact=exact) is said

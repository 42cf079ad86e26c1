"""Tables that code has displayed as HTML and as text: the text is left out only where the table says the same."""

from __future__ import annotations

import pytest

from coderoom.runs.tables import without_table

TABLE = (
    "<div><style>td { color: red }</style><table><thead><tr><th></th><th>a</th><th>b b</th></tr></thead><tbody>"
    "<tr><th>0</th><td>1</td><td>x y</td></tr><tr><th>1</th><td>2</td><td>z</td></tr></tbody></table></div>"
)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("one\n   a  b b\n0  1  x y\n1  2    z\n", "one\n"),
        ("one\nDataFrame, 2 rows x 2 columns\ntypes: a int64, b b str\n | a | b b\n0 | 1 | x y\n1 | 2 | z\n", "one\n"),
        ("   a  b b\n0  1  x y\n[20 rows in between]\n1  2    z\n", ""),
        ("   a  b b\n0  1  x y\n1  2    z\n\n[2 rows x 2 columns]\n", ""),
        *((same, same) for same in ("   a  b b\n0  1  x y\n1  3    z\n", "0  1  x y\n1  2    z\n", "Nothing.\n", "")),
    ],
)
def test_the_text_of_a_table(text: str, rest: str) -> None:
    assert without_table(text, TABLE) == rest
    assert without_table(text, "<p>Something else</p>") == text

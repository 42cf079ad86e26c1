"""Texts in exported scripts: nothing in a text can end the literal or the comment that it stands in."""

from __future__ import annotations

import ast
import re

import hypothesis.strategies as st
from hypothesis import given

from coderoom.runs.export.script import as_comment, literal, showing

TEXTS = st.lists(
    st.text(max_size=20) | st.sampled_from(["'''", '"""', "\\", "\n", "\r", "\x0c", "\u2028", "# /// script", "\0"]),
    max_size=12,
).map("".join)


@given(TEXTS)
def test_a_literal_is_the_text(text: str) -> None:
    assert ast.literal_eval(literal(text)) == text


@given(TEXTS)
def test_a_comment_stays_one(text: str) -> None:
    comment = as_comment(text)
    assert ast.parse(comment).body == []
    assert all(line.startswith("#   ") or line == "#" for line in comment.split("\n"))
    assert not re.search(r"^# /// ", comment, re.MULTILINE)


def test_the_last_expression_is_shown() -> None:
    cases = {
        "x = 1\nx": "x = 1\n_show(x)",
        "x; y  # both": "x; _show(y)  # both",
        "é = 'ü'; (é,\n é)": "é = 'ü'; _show(((é,\n é)))",
        "1, 2": "_show((1, 2))",
        "await f()": "_show(await f())",
        "print(1)": "print(1)",
        "for x in y:\n    x": "for x in y:\n    x",
        "no python": "no python",
        "": "",
    }
    assert {code: showing(code) for code in cases} == cases

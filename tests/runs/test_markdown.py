"""What models write as Markdown, at a terminal."""

from __future__ import annotations

import io
import re

import hypothesis.strategies as st
import pytest
from autogen_agentchat.messages import TextMessage
from hypothesis import assume, given
from rich.console import Console

from coderoom.runs import RunView


def shown(text: str, width: int = 80) -> str:
    """What a person sees of a message, without the name of its agent and colours."""
    out = io.StringIO()
    view = RunView(Console(file=out, width=width, force_terminal=True, legacy_windows=False), tasks_elsewhere=True)
    view.show(TextMessage(source="coder", content=text))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).split("\n")[2:]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("## A title", "A title"),
        ("**Note**: it is *this*, as `x` **`y`** says (**twice**).", "Note: it is this, as x y says (twice)."),
        (
            "- one\n- two\n  - three\n\n4. four\n5. five\n1) last",
            "• one\n• two\n  • three\n\n4. four\n5. five\n\n1) last",
        ),
        ("See [the docs](https://a.example/b).", "See the docs (https://a.example/b)."),
        ("| a | b |\n|---|--:|\n| 1 | **two** |", " a    b\n ──────\n 1  two"),
        ("```python\nx = 2\n```", " x = 2"),
    ],
)
def test_marks_are_not_shown(text: str, seen: str) -> None:
    assert shown(text).strip("\n") == seen


@pytest.mark.parametrize(
    "text",
    [
        "2*3*4 = 24, 2**3**4, x**2 + y**2",
        "SELECT *, count(*) and *.py *.md; f(*args, **kwargs)",
        "__init__, _private_, a_b_c, *A*b",
        "items[0](1) and [a](javascript:x) and [x]: y",
        "<b>x</b> &lt; \\* <https://a.example/>",
        "| a | b |\n|---|---|\n| 1 | 2 | 3 |",
        "Traceback (most recent call last):\n  File \"x\", line 1\n    f()\nKeyError: 'k'",
        "+ added\n+ and this",
    ],
)
def test_what_only_looks_like_marks_stays(text: str) -> None:
    assert shown(text) == text


MARKS = ["*", "**", "_", "`", "- ", "1. ", "# ", "> ", "|", "|-|-|\n", "[x](", "https://y.z)", "\n", "\n\n", "  "]


@pytest.mark.slow
@given(st.lists(st.sampled_from(["a", "b c", *MARKS]), max_size=40).map("".join))
def test_no_letter_is_lost(text: str) -> None:
    assume("```" not in text)  # Its label is not shown.
    assert re.sub(r"[\W\d_]", "", shown(text, 200)) == re.sub(r"[\W\d_]", "", text)

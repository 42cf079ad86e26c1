from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.configs.reading import Source, read_document


def test_core_tags_and_values(tmp_path: Path) -> None:
    text = """\
a: !!str 5
b: !!int "6"
c: !!float 7
d: !!null ""
e: [yes, on, 2024-01-02, 010, 0x10, 0o7, 1_000, 1e3, .5, -.inf, ~, null, True, "true", 1.5.2]
5: five
true: words
f: !!seq [!!bool "true"]
"""
    data = read_document(Source("x.yaml", text.encode())).data
    assert data == {
        "a": "5",
        "b": 6,
        "c": 7,
        "d": None,
        "e": [
            *("yes", "on", "2024-01-02", 10, 16, 7, "1_000", 1000.0, 0.5, -float("inf")),
            *(None, None, True, "true", "1.5.2"),
        ],
        "5": "five",
        "true": "words",
        "f": [True],
    }


def test_anchors_and_merge_keys(tmp_path: Path) -> None:
    text = """\
x-base: &base {a: 1, b: 2}
x-more: &more {b: 3, c: 4}
one: {<<: *base, b: 9}
two: {<<: [*base, *more]}
three: *base
"""
    data = read_document(Source("x.yaml", text.encode())).data
    assert data == {"one": {"a": 1, "b": 9}, "two": {"a": 1, "b": 2, "c": 4}, "three": {"a": 1, "b": 2}}


@pytest.mark.parametrize("text", ["a: {<<: 5}", "a: {<<: [{b: 1}, c]}", "? [a, b]\n: 1"])
def test_wrong_merge_and_keys(tmp_path: Path, text: str) -> None:
    assert read_document(Source("x.yaml", text.encode())).problems


def test_halves_of_characters(tmp_path: Path) -> None:
    document = read_document(Source("x.yaml", rb'a: "\ud83d\ude00"'))
    assert (document.data, document.problems) == ({"a": "\U0001f600"}, ())
    for name in ("x.yaml", "x.json"):
        document = read_document(Source(name, rb'{"a": "\ud83d"}', is_json=name.endswith("json")))
        assert "half of a character" in document.problems[0].message

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from coderoom.configs import ReplayModel, dump_team
from coderoom.configs.dumping import plain, restored, to_json, to_yaml
from coderoom.configs.findings import Checked
from coderoom.configs.reading import Document, Source, read_document
from coderoom.configs.variables import Reference, References
from tests.configs.config_files import line_of
from tests.configs.test_config_dumping import made_in_python


def content(text: str) -> Any:
    document = read_document(Source("x.yaml", text.encode()))
    assert document.problems == ()
    return document.data


def test_plain_secrets_are_left_out() -> None:
    """AutoGen does not mask these."""
    assert restored({"azure_ad_token": "eyJ", "max_tokens": "x", "n": ["********"]}, None) == {
        "max_tokens": "x",
        "n": ["********"],
    }
    assert restored(plain({"some": SecretStr("x"), "more": ["**********", 1]}), None) == {"more": [1]}
    text = dump_team(made_in_python(api_key="k", default_headers={"Authorization": "Bearer abc", "X-Mine": "kept"}))
    assert "Bearer" not in text
    assert "X-Mine: kept" in text


def test_secret_inside_another_text_is_hidden() -> None:
    reference = Reference("${MY_TOKEN}", "tok-123456", {"MY_TOKEN": "tok-123456"})
    origin = Checked(Document("", {}, {}), References({("a",): reference}))
    assert restored({"b": "https://x/?t=tok-123456"}, origin) == {"b": "https://x/?t=${MY_TOKEN}"}


def test_reference_is_not_put_back_where_the_value_changed() -> None:
    reference = Reference("${N:-5}", "5")
    origin = Checked(Document("", {}, {}), References({("a", "n"): reference, ("a", "b"): Reference("${B}", "on")}))
    assert restored({"a": {"n": 5, "b": True}}, origin) == {"a": {"n": "${N:-5}", "b": "${B}"}}
    assert restored({"a": {"n": 5.0, "b": False}}, origin) == {"a": {"n": "${N:-5}", "b": False}}
    assert restored({"a": {"n": 6}}, origin) == {"a": {"n": 6}}
    assert restored({"a": {"n": [5]}}, origin) == {"a": {"n": [5]}}


def test_reference_is_not_put_into_another_component() -> None:
    reference = Reference("${KEY}", "secret-1", {"KEY": "secret-1"})
    path = ("model", "config", "api_key")
    data: Any = {"model": {"provider": "coderoom.configs.ReplayModel", "config": {"api_key": "**********"}}}
    origin = Checked(Document("", data, {}), References({path: reference}), components={("model",): ReplayModel})
    assert restored(plain(data), origin)["model"]["config"] == {"api_key": "${KEY}"}
    data["model"]["provider"] = "b.Model"
    assert restored(plain(data), origin)["model"]["config"] == {}


def test_long_texts_are_blocks() -> None:
    prompt = "First line: with a colon\n\n  - indented # not a comment\nlast\n"
    text = to_yaml({"a": {"b": prompt, "c": "x " * 80 + "x", "d": "short"}, "e": [prompt.rstrip()]})
    assert "  b: |\n    First line: with a colon\n\n      - indented # not a comment\n    last\n" in text
    assert "  c: |-\n    x x" in text
    assert "  d: short\n" in text
    assert "  - |-\n    First line" in text
    assert line_of(text, "d: short") == 9


TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(alphabet=" \n\t:-#'\"\\|>&*!%@`{}[],?x\r\x85\u2028\ufeff\x7f\u00e9~", max_size=12),
    st.text(alphabet="ab \n", min_size=1, max_size=200),
    st.sampled_from(
        ["", "~", "null", "Null", "true", "FALSE", "yes", "on", "no", "1", "-1", "+1", "010", "0x1F", "0o17"]
    ),
    st.sampled_from(["1_000", "1e3", ".5", "5.", "1.5", ".inf", "-.INF", ".nan", "2024-01-02", "12:30:45", "<<", "="]),
    st.sampled_from(
        ["---", "...", "- a", "a: b", "a #b", "#", "? a", "%a", "@a", "`a", "!a", "&a", "*a", "|", ">", "'"]
    ),
    st.sampled_from(['"', "a'b", "\ufeffa", " a "]),
).filter(lambda text: not any(0xD800 <= ord(character) <= 0xDFFF for character in text))


@given(st.recursive(TEXTS | st.booleans() | st.integers() | st.floats(allow_nan=False), st.lists, max_leaves=5), TEXTS)
def test_any_value_comes_back_from_yaml(value: Any, key: str) -> None:
    if not key.startswith("x-"):
        text = to_yaml({"top": value, "in": {key: value}, "list": [{key: value}]})
        assert content(text) == {"top": value, "in": {key: value}, "list": [{key: value}]}


@given(TEXTS)
def test_any_text_comes_back_from_json(text: str) -> None:
    document = read_document(Source("x.json", to_json({"a": [text]}).encode(), is_json=True))
    assert document.data == {"a": [text]}

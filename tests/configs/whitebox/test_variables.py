"""References to variables in texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coderoom._util.text import is_secret_name
from coderoom.configs.variables import Reference, References, escape, is_secret_key, resolve

ENV = {"A": "one", "B": "two", "EMPTY": "", "_under9": "x"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("<${A} ${B}${A}>", "<one twoone>"),
        ("${A:-other}", "one"),
        ("${C:-other}", "other"),
        ("${C:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-other}", "other"),
        ("${_under9}", "x"),
        ("${C:-two\nlines: $5}", "two\nlines: $5"),
        ("${C:-a:-b}", "a:-b"),
    ],
)
def test_references(text: str, value: str) -> None:
    found = resolve(text, ENV)
    assert isinstance(found, Reference)
    assert (found.raw, found.value, found.problems) == (text, value, ())


@pytest.mark.parametrize(
    ("text", "value"),
    [("$A $5 {A} }{", "$A $5 {A} }{"), ("$${A}", "${A}"), ("$$${A}", "$${A}"), ("a$${b$${", "a${b${"), ("", "")],
)
def test_texts_without_references(text: str, value: str) -> None:
    assert resolve(text, ENV) == value


def test_used_variables() -> None:
    found = resolve("${A}${C:-x}$${B}", ENV)
    assert isinstance(found, Reference)
    assert found.value == "onex${B}"
    assert dict(found.used) == {"A": "one"}


@given(st.text(alphabet="$ {}a:-\n", max_size=30))
def test_escape_is_undone(text: str) -> None:
    assert resolve(escape(text), {}) == text


@given(st.text(alphabet="${}A:-", max_size=30))
def test_any_text_resolves_or_says_why(text: str) -> None:
    found = resolve(text, ENV)
    assert isinstance(found, str) or found.problems or "${" in found.raw


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "HF_TOKEN", "PASSWORD", "DB_PASS", "apikey", "SECRET_2"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["MAX_TOKENS", "AUTHOR", "KEYBOARD", "WORKSPACE", "COMPASS"])
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)


def test_keys_of_secrets() -> None:
    assert all(map(is_secret_key, ["api_key", "azure_ad_token", "Authorization", "X-Api-Key", "client_secret"]))
    assert not any(map(is_secret_key, ["max_tokens", "stop_token", "author", "key", "password_policy"]))


def test_hiding() -> None:
    references = References({("a",): Reference("${MY_KEY}", "abcdef123", {"MY_KEY": "abcdef123", "NAME": "visible"})})
    assert references.hide("is 'abcdef123' and visible") == "is '${MY_KEY}' and visible"
    assert references.hide("is 'abcdef1...'") == "is '${MY_KEY}...'"

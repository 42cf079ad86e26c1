"""Prices of tokens: those that come with the package, and the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from autogen_ext.models.openai import OpenAIChatCompletionClient

from coderoom.errors import ConfigError, RequestError
from coderoom.models.prices import cost_of, price_table, priced_as


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file of prices."""
    monkeypatch.setenv("CODEROOM_PRICES", str(tmp_path / "prices.yaml"))
    return tmp_path / "prices.yaml"


def test_a_model_has_the_price_of_its_name_without_provider_and_version(own: Path) -> None:
    own.write_text("mine: [2, 10]\nmine-2030: [4, 20]\n")
    assert cost_of("mine", 1_000_000, 100_000) == 3
    assert cost_of("Somebody/Mine-2026-01-02", 1_000_000, 0) == 2
    assert cost_of("mine-latest", 0, 1_000_000) == 10
    assert cost_of("mine-2030", 1_000_000, 0) == 4
    assert cost_of("mine-mini", 1_000_000, 0) is None
    assert price_table()["gpt-4o"] == (2.5, 10)
    assert "gpt-4o" not in price_table(with_shipped=False)


def test_models_of_other_servers_cost_what_the_user_says(own: Path) -> None:
    own.write_text("mine: [2, 10]\n")
    for address, name in (
        ("https://api.openai.com/v1", "gpt-4o"),
        ("https://eu.api.openai.com:443/v1", "gpt-4o"),
        ("https://notopenai.com/v1", "notopenai.com#gpt-4o"),
        ("http://user:word@127.0.0.1:8080/v1", "127.0.0.1:8080#gpt-4o"),
    ):
        assert priced_as(OpenAIChatCompletionClient(model="gpt-4o", api_key="key", base_url=address)) == name
    assert cost_of("127.0.0.1:8080#gpt-4o", 1_000_000, 0) is None
    assert cost_of("127.0.0.1:8080#mine", 1_000_000, 0) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1", "expected a mapping of models"),
        ("a: [1, 2]\nb: [1]", r"prices.yaml:2: b: expected the prices of a million tokens"),
        ("b: [1, -2]", "expected the prices"),
        ("b: [1, true]", "expected the prices"),
        ("b: {", "prices.yaml"),
    ],
)
def test_a_file_of_prices_that_is_none(own: Path, text: str, said: str) -> None:
    own.write_text(text)
    with pytest.raises(ConfigError, match=said):
        price_table()


def test_a_file_of_prices_that_is_missing(own: Path) -> None:
    with pytest.raises(RequestError, match=f"The prices in '{own}' cannot be read"):
        price_table()

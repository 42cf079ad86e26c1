"""The texts of models, the configs of their clients, and what their errors mean; `tests/wire` has real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.errors import MissingKeyError, RequestError
from coderoom.models.services import (
    NO_KEY,
    absolute_model,
    advice_for,
    client_config,
    default_model,
    in_words,
    is_model_text,
    is_out_of_credit,
    is_transient,
    key_of,
    said,
)


def test_the_config_of_a_client() -> None:
    assert client_config("openai:gpt-5", {"OPENAI_API_KEY": "k"}) == {"model": "gpt-5", "api_key": "k"}
    assert client_config("openai: gpt-5 ", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "u"}) == {
        "model": "gpt-5",
        "api_key": "k",
        "base_url": "u",
    }
    assert client_config("openai:m", {"OPENAI_BASE_URL": "u"}) == {"model": "m", "api_key": NO_KEY, "base_url": "u"}
    hosted = client_config("openai:claude-x", {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "a"})
    assert hosted == {"model": "claude-x", "api_key": "a"}
    azure = client_config("azure:d", {"AZURE_OPENAI_ENDPOINT": "e", "AZURE_OPENAI_API_KEY": "k"})
    assert (azure["azure_deployment"], azure["azure_endpoint"], azure["api_version"]) == ("d", "e", "2024-10-21")
    assert client_config("vllm:m", {}) == {"model": "m", "api_key": NO_KEY, "base_url": "http://localhost:8000/v1"}
    assert client_config("https://h/v1#m", {}) == {"model": "m", "api_key": NO_KEY, "base_url": "https://h/v1"}
    assert client_config("ollama:a:8b", {"OLLAMA_HOST": "h"}) == {"model": "a:8b", "host": "h"}


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("openai:m", "needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs no key, or use"),
        ("azure:m", "needs an address and a key: set AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY, or use"),
        ("anthropic:m", "needs a key: set ANTHROPIC_API_KEY, or use"),
        ("openai:gemini-x", "needs a key: set GEMINI_API_KEY, or OPENAI_BASE_URL"),
    ],
)
def test_what_is_missing_is_named(text: str, needs: str) -> None:
    with pytest.raises(MissingKeyError, match=needs):
        client_config(text, {})


def test_texts_of_models() -> None:
    for wrong, why in (("http://h/v1", "has no name"), ("openai:", "names nothing after the colon")):
        with pytest.raises(RequestError, match=why):
            client_config(wrong, {"OPENAI_API_KEY": "k"})
    assert [key_of(model, {"ANTHROPIC_API_KEY": "k"}) for model in ("m", "anthropic:m", "vllm:m")] == [
        None,
        None,
        NO_KEY,
    ]
    texts = ("openai:m", "opnai:m", "replay:a", "team.YAML", "m", "llama3:8b", "openai")
    assert [is_model_text(text) for text in texts] == [True, True, True, True, False, False, False]
    named = [default_model({"CODEROOM_MODEL": name}) for name in (" ", "ft:m", "vllm:m")]
    assert [default_model({}), *named] == ["openai:gpt-4o", "openai:gpt-4o", "openai:ft:m", "vllm:m"]
    here = Path.cwd()
    assert absolute_model("replay: a.yaml") == f"replay:{here}/a.yaml"
    assert [absolute_model(each) for each in ("a.json", "openai:a.json", "m")] == [
        f"{here}/a.json",
        "openai:a.json",
        "m",
    ]


class RateLimitError(Exception):
    """As that of the openai package, whose name counts."""


def test_what_an_error_means() -> None:
    spent, pause = RateLimitError("insufficient_quota"), RateLimitError("slow down")
    assert (is_out_of_credit(spent), is_transient(spent)) == (True, False)
    assert (is_out_of_credit(pause), is_transient(pause)) == (False, True)
    wrapped = RuntimeError("x")
    wrapped.__cause__ = pause
    assert is_transient(wrapped)
    late, wrong = Exception(), Exception()
    late.status_code, wrong.status_code = 408, 409  # type: ignore[attr-defined]
    assert [is_transient(late), is_transient(wrong), is_transient(ValueError())] == [True, False, False]
    assert advice_for(pause) == "The model service asks for a pause: try again later."
    assert advice_for(ValueError("x")) == ""
    assert in_words("writer", pause) == f"writer failed: RateLimitError: slow down. {advice_for(pause)}"
    assert in_words("writer", ValueError("no.\nTraceback: x")) == "writer failed: ValueError: no."
    pause.body = {"error": {"message": "Too\nmany."}}  # type: ignore[attr-defined]
    assert said(pause) == "Too many."
    assert [len(said(Exception("x" * length))) for length in (500, 501)] == [500, 503]

"""The key that AutoGen Studio's server gets for the model of all teams."""

from __future__ import annotations

import pytest

from coderoom.models.services import key_of


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("http://127.0.0.1:9/v1#qwen", "none"),
        ("vllm:qwen", "none"),
        ("openrouter:qwen", "sk-router"),
        ("openai:gpt-4o", "sk-openai"),
        ("ollama:qwen", None),
    ],
)
def test_a_service_gets_its_own_key_or_a_placeholder(model: str, key: str | None) -> None:
    assert key_of(model, {"OPENAI_API_KEY": "sk-openai", "OPENROUTER_API_KEY": "sk-router"}) == key

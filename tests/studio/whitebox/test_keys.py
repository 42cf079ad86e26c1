"""The key that AutoGen Studio's server gets for the model of all teams."""

from __future__ import annotations

import pytest

from coderoom.studio.start import _key_of


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("http://127.0.0.1:9/v1#qwen", "none"),
        ("vllm:qwen", "none"),
        ("openrouter:qwen", "sk-router"),
        ("openai:gpt-4o", "sk-openai"),
        ("ollama:qwen", None),
        (None, None),
    ],
)
def test_a_service_gets_its_own_key_or_a_placeholder(
    model: str | None, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-router")
    for name in ("CODEROOM_API_KEY", "VLLM_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert _key_of(model) == key

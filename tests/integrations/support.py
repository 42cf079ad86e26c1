"""Answers of a scripted model."""

from __future__ import annotations

import json
from typing import Any

from tests.support.openai_server import Raw


def call(number: int, code: str) -> Raw:
    """A model's answer that calls the tool."""
    function = {"name": "run_code", "arguments": json.dumps({"code": code})}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }
    body: dict[str, Any] = {
        "id": f"answer-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-5-mini",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    return Raw(json.dumps(body).encode())

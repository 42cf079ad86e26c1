"""Answers of a scripted model, and programs in the environments of the frameworks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from coderoom.studio.environment import without_python_settings
from tests.support.commands import ROOT
from tests.support.openai_server import OpenAIServer, Raw

EXAMPLES = ROOT / "examples" / "integrations"
INSIDE = Path(__file__).parent / "inside"


def run(python: Path, *arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in without_python_settings(os.environ).items() if "OPENAI" not in name}
    quiet = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "INSPECT_DISPLAY": "plain", "HOME": str(cwd)}
    quiet["MONTY_BIN"] = str(Path(sys.executable).with_name("monty"))
    quiet["PATH"] = f"{Path(sys.executable).parent}:{kept.get('PATH', os.defpath)}"  # Verifiers calls uv.
    return subprocess.run(
        [str(python), *arguments],
        cwd=cwd,
        env={**kept, **quiet, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_example(python: Path, name: str, server: OpenAIServer, cwd: Path) -> str:
    addresses = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), server.base_url)
    done = run(python, str(EXAMPLES / name), cwd=cwd, OPENAI_API_KEY="test", **addresses)
    assert done.returncode == 0, done.stdout
    assert server.pending == 0, done.stdout
    return done.stdout


def run_checks(python: Path, file: str, cwd: Path) -> None:
    """Run a file of `inside` in an environment."""
    options = ["-q", "-rA", "--tb=short", "-p", "no:cacheprovider", "-c", str(INSIDE / "pytest.ini")]
    done = run(python, "-m", "pytest", *options, str(INSIDE / file), cwd=cwd)
    assert done.returncode == 0, done.stdout


def call(number: int, code: str) -> Raw:
    """A model's answer that calls the tool `run_code`."""
    return call_of(number, "run_code", code=code)


def call_of(number: int, tool: str, **arguments: Any) -> Raw:
    """A model's answer that calls a tool."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
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


def streamed(answer: Raw) -> Raw:
    """An answer that calls a tool, for a client that wants a stream."""
    body = json.loads(answer.body)
    [choice] = body["choices"]
    [tool_call] = choice["message"]["tool_calls"]
    delta = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **tool_call}]}
    begin = {"index": 0, "delta": delta, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    chunks = [{**body, "object": "chat.completion.chunk", "choices": [each]} for each in (begin, end)]
    events = [f"data: {json.dumps(each)}\n\n" for each in chunks]
    return Raw("".join([*events, "data: [DONE]\n\n"]).encode(), content_type="text/event-stream")

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT

RUN = ("run", "coder-executor", "Do it.", "--no-journal")
NILE = f"replay:{ROOT / 'examples/nile.replay.yaml'}"
COMMANDS = {
    ("mcp",): "mcp",
    ("mcp", "--http", "0"): "mcp",
    ("serve", "coder-executor", "--model", "openai:gpt-4o"): "serve",
    ("run", "analyst", "Draw.", "--model", NILE, "--no-journal"): "plots",
    ("chat", "analyst", "--model", NILE, "--no-journal"): "plots",
    ("batch", "analyst", "i.jsonl", "--out", "o", "--model", NILE): "plots",
    ("studio", "--model", "anthropic:claude-x"): "anthropic",
    ("gallery", "--model", "ollama:llama3"): "ollama",
    (*RUN, "--model", "anthropic:claude-x"): "anthropic",
    (*RUN, "--model", "ollama:llama3"): "ollama",
    ("run", "code-act", "x", "--model", "replay:r.json", "--no-journal", "--otlp", "http://127.0.0.1:1"): "otel",
    ("exec", "a.py", "--no-journal", "--otlp", "http://127.0.0.1:1"): "otel",
    ("exec", "a.py", "--no-journal", "--wall", "sandlock"): "sandlock",
    ("batch", "code-act", "i.parquet", "--out", "q", "--model", "replay:r.json"): "batch",
    ("batch", "code-act", "i.jsonl", "--out", "p", "--model", "replay:r.json", "--engine", "ray"): "ray",
    ("solve", "Double.", "--out", "q", "--language", "javascript", "--model", "replay:r.json"): "javascript",
}
MODULES = {
    "coderoom.integrations.agent_framework": "agent-framework",
    "coderoom.integrations.chat_completions": "serve",
    "coderoom.integrations.deepagents": "deepagents",
    "coderoom.integrations.inspect_ai": "inspect",
    "coderoom.integrations.langchain": "langchain",
    "coderoom.integrations.llama_index": "llama-index",
    "coderoom.integrations.mcp": "mcp",
    "coderoom.integrations.nemo_gym": "nemo-gym",
    "coderoom.integrations.openai_agents": "openai-agents",
    "coderoom.integrations.openai_sandbox": "openai-agents",
    "coderoom.integrations.openenv": "openenv",
    "coderoom.integrations.pydantic_ai": "pydantic-ai",
    "coderoom.integrations.smolagents": "smolagents",
    "coderoom.integrations.verifiers": "verifiers",
    "coderoom.ray": "ray",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_its_extra_each_command_and_door_names_it_at_once(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(ROOT)]
    subprocess.run(install, check=True)
    (tmp_path / "a.py").write_text("print(1)")
    (tmp_path / "r.json").write_text('{"replies": ["x"]}')
    (tmp_path / "i.jsonl").write_text('{"task": "x"}\n')
    (tmp_path / "i.parquet").write_bytes(b"PAR1")
    env = os.environ | {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x", "CODEROOM_JOURNAL": "off"}
    wrong = {}
    commands = {("-m", "coderoom", *words): extra for words, extra in COMMANDS.items()}
    commands |= {("-c", f"import {name}"): extra for name, extra in MODULES.items()}
    commands["-c", "from coderoom.agents.type_check import TypeCheck; TypeCheck(200)"] = "types"
    for words, extra in commands.items():
        done = subprocess.run(
            [python, *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        code = 3 if words[0] == "-m" else 1
        if (
            done.returncode != code
            or f"pip install 'coderoom[{extra}]'" not in done.stderr
            or done.stderr.count("[") > 1
        ):
            wrong[words] = (done.returncode, done.stdout[-500:], done.stderr[-500:])
    assert not wrong

from __future__ import annotations

import json
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


# What all of them import is imported once; each then has a process of its own, as a user's command has.
EACH = """
import json, os, sys
import coderoom.agents, coderoom.cli, coderoom.configs

found = []
for statement, words in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    if not os.fork():
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(writing)
        sys.argv = ["coderoom", *words]
        exec(statement)
        sys.exit()
    os.close(writing)
    with open(reading) as said:
        text = said.read()
    found.append([os.waitstatus_to_exitcode(os.wait()[1]), text])
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_its_extra_each_command_and_door_names_it_at_once(tmp_path: Path) -> None:
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    links = {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in os.environ else {}
    pins = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*install, *pins, str(ROOT)], check=True, env=os.environ | links)
    (tmp_path / "a.py").write_text("print(1)")
    (tmp_path / "r.json").write_text('{"replies": ["x"]}')
    (tmp_path / "i.jsonl").write_text('{"task": "x"}\n')
    (tmp_path / "i.parquet").write_bytes(b"PAR1")
    tried = [("coderoom.cli.main()", words, 3, extra) for words, extra in COMMANDS.items()]
    tried += [(f"import {name}", (), 1, extra) for name, extra in MODULES.items()]
    tried.append(("from coderoom.agents.type_check import TypeCheck; TypeCheck(200)", (), 1, "types"))
    done = subprocess.run(
        [python, "-c", EACH, json.dumps([(statement, words) for statement, words, *_ in tried])],
        cwd=tmp_path,
        env=os.environ | {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x", "CODEROOM_JOURNAL": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    wrong = [
        (*each, code, said[-500:])
        for each, (code, said) in zip(tried, json.loads(done.stdout), strict=True)
        if code != each[2] or f"pip install 'coderoom[{each[3]}]'" not in said or said.count("[") > 1
    ]
    assert not wrong

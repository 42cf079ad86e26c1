"""Each framework's own agent, from its own example, with a real client of a scripted model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.support import INSIDE, call, call_of, run_checks, run_example
from tests.support.openai_server import OpenAIServer, Reply

CELLS = (
    "primes = [n for n in range(2, 1000) if all(n % d for d in range(2, n))]",
    "print(open('nothing').read())",
    "len(primes)",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["framework_agent.py", "langchain_agent.py", "openai_agent.py", "pydantic_agent.py"])
def test_agent_runs_code_in_one_session(name: str, frameworks: Path, server: OpenAIServer, tmp_path: Path) -> None:
    server.add(*(call(number, code) for number, code in enumerate(CELLS)), Reply("There are 168."))
    output = run_example(frameworks, name, server, tmp_path)
    assert output.splitlines()[-1] == "There are 168."

    tool = server.requests[0].body["tools"][0]["function"]
    assert tool["name"] == "run_code"
    assert "isolated sandbox" in tool["description"]
    assert list(tool["parameters"]["properties"]) == ["code"]
    answers = [message["content"] for message in server.requests[-1].messages if message["role"] == "tool"]
    assert answers[0] == "(no output)"
    assert "FileNotFoundError: [Errno 2] No such file or directory: 'nothing'" in answers[1]
    assert answers[1].splitlines()[-1] == "[outcome: error, exit code 1]"
    assert answers[2] == "168"


@pytest.mark.slow
def test_code_agent_calls_tools_of_the_host(frameworks: Path, server: OpenAIServer, tmp_path: Path) -> None:
    server.add(
        "Thought: I look it up.\n<code>\nlimit = limit_of('thousand')\nprint(limit)\n</code>",
        "Thought: a mistake.\n<code>\nlimit / 0\n</code>",
        f"Thought: I count.\n<code>\n{CELLS[0]}\nfinal_answer(len(primes) + limit - 1000)\n</code>",
    )
    output = run_example(frameworks, "smolagents_agent.py", server, tmp_path)
    assert output.splitlines()[-1] == "168"
    seen = [str(request.messages[-1]["content"]) for request in server.requests]
    assert "1000" in seen[1]
    assert "ZeroDivisionError" in seen[2]


@pytest.mark.slow
def test_sandbox_agent_runs_commands(frameworks: Path, server: OpenAIServer, tmp_path: Path) -> None:
    server.add(call_of(1, "exec_command", cmd="wc -l < poem.txt"), Reply("Three."))
    output = run_example(frameworks, "openai_sandbox_agent.py", server, tmp_path)
    assert output.splitlines()[-1] == "Three."
    [answer] = [each["content"] for each in server.requests[-1].messages if each["role"] == "tool"]
    assert "3" in str(answer).split()


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(path.name for path in INSIDE.glob("*_checks.py")))
def test_checks_inside_the_environment(file: str, frameworks: Path, tmp_path: Path) -> None:
    run_checks(frameworks, file, tmp_path)

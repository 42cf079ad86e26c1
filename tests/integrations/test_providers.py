"""Frameworks that ask for a machine, an executor or a reward, each in an environment with its own versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integrations.support import EXAMPLES, INSIDE, call, call_of, run, run_checks, run_example, streamed
from tests.support.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.slow
Environment = Callable[[str], Path]
FILES = sorted(str(path.relative_to(INSIDE)) for path in INSIDE.glob("*/*_checks.py"))


@pytest.mark.parametrize("file", FILES)
def test_checks_inside_an_environment(file: str, environment: Environment, tmp_path: Path) -> None:
    run_checks(environment(Path(file).parent.name), file, tmp_path)


def test_deep_agent_writes_and_runs_a_file(environment: Environment, server: OpenAIServer, tmp_path: Path) -> None:
    code = "print(sum(all(n % d for d in range(2, n)) for n in range(2, 1000)))"
    server.add(
        call_of(1, "write_file", file_path="/workspace/primes.py", content=code),
        call_of(2, "execute", command="python3 primes.py; echo $?"),
        Reply("There are 168."),
    )
    output = run_example(environment("agents"), "deep_agent.py", server, tmp_path)
    assert output.splitlines()[-1] == "There are 168."
    answers = [str(message["content"]) for message in server.requests[-1].messages if message["role"] == "tool"]
    assert answers[1].split()[:2] == ["168", "0"]


def test_llama_index_goes_on_with_its_variables(environment: Environment, server: OpenAIServer, tmp_path: Path) -> None:
    server.add(
        "<execute>\nlimit = limit_of('thousand')\n</execute>",
        "<execute>\nlimit / 0\n</execute>",
        "<execute>\nprimes = [n for n in range(2, limit) if all(n % d for d in range(2, n))]\nlen(primes)\n</execute>",
        "There are 168.",
        "<execute>\nsum(primes)\n</execute>",
        "It is 76127.",
    )
    output = run_example(environment("agents"), "llama_index_agent.py", server, tmp_path)
    assert output.splitlines()[-2:] == ["There are 168.", "It is 76127."]
    seen = [str(request.messages[-1]["content"]) for request in server.requests]
    assert seen[1].endswith("(no output)")
    assert "ZeroDivisionError" in seen[2]
    assert seen[3].endswith("168")
    assert seen[5].endswith("76127")


def test_verifiers_rewards_what_passes(environment: Environment, server: OpenAIServer, tmp_path: Path) -> None:
    server.add(
        streamed(call(1, "twice = lambda n: 2 * n; twice(21)")),
        "```python\ndef twice(n):\n    return 2 * n\n```",
        "```python\ndef last(xs):\n    return xs[0]\n```",
    )
    output = run_example(environment("verifiers"), "verifiers_env.py", server, tmp_path)
    first, second = output.splitlines()[-2:]
    assert (first.split()[-1], second.split()[-1]) == ("1.0", "0.0")
    [answer] = [message["content"] for message in server.requests[1].messages if message["role"] == "tool"]
    assert "42" in str(answer)


def test_trl_trains_a_model_to_write_code_that_passes(environment: Environment, tmp_path: Path) -> None:
    done = run(environment("trl"), str(EXAMPLES / "trl_train.py"), cwd=tmp_path, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stdout
    first, last = map(float, done.stdout.splitlines()[-1].split())
    assert last > first + 0.2


def test_openenv_episodes(environment: Environment, tmp_path: Path) -> None:
    done = run(environment("openenv"), str(EXAMPLES / "openenv_episode.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert {"2 0.0 True", "4 1.0 True"} <= {*done.stdout.splitlines()}


def test_nemo_gym_rewards_what_passes(environment: Environment, tmp_path: Path) -> None:
    done = run(environment("nemo_gym"), str(EXAMPLES / "nemo_gym_answers.py"), cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["2 0.0", "4 1.0"]), done.stdout

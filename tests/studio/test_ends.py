"""How runs end in Studio's playground, and that nothing is left then."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.helpers import python
from tests.studio.driving import Run, Studio, texts
from tests.studio.processes import below, wait_until_gone
from tests.studio.teams import ACT, CODING, EXECUTOR, REVIEWER, ROUND, agent, openai, part, replay, sandbox, team
from tests.support.openai_server import OpenAIServer, Stall
from tests.support.studio import Studio as Server
from tests.support.studio import start_studio

SECONDS = 2.0
"""Within which a run that is stopped has ended."""

ENDLESS = python("print('begun', flush=True)\nwhile True:\n    pass")
STUBBORN = python(
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "if os.fork() == 0:\n    os.setsid()\nprint('begun', flush=True)\n"
    "while True:\n    try:\n        time.sleep(1)\n    except BaseException:\n        pass"
)
SHELL = "```sh\necho begun\nwhile true; do :; done\n```"


@dataclass
class Stuck:
    """A run in the midst of something that never ends.

    Attributes:
        run: The run.
        started: The processes that there are for it.
        model: The model's service that does not answer.
    """

    run: Run
    started: dict[int, str]
    model: OpenAIServer


Begin = Callable[[OpenAIServer, Path], tuple[dict[str, Any], str]]
"""Makes a team, and says by which text the page shows that it is stuck; empty if it waits for the model."""


def writes(code: str) -> Begin:
    def begin(model: OpenAIServer, folder: Path) -> tuple[dict[str, Any], str]:
        return agent(EXECUTOR, "coder", model_client=replay(code, "x"), code_executor=sandbox(folder)), "**Attempt 1**"

    return begin


def acts(code: str) -> Begin:
    def begin(model: OpenAIServer, folder: Path) -> tuple[dict[str, Any], str]:
        models = {"model_client": replay(code, "x"), "model_client_stream": True}
        return agent(ACT, "coder", **models, code_executor=sandbox(folder)), "begun\n"

    return begin


def local(model: OpenAIServer, folder: Path) -> tuple[dict[str, Any], str]:
    executor = part("code_executor", "coderoom.executors.LocalCodeExecutor", work_dir=str(folder))
    return agent(EXECUTOR, "coder", model_client=replay(ENDLESS, "x"), code_executor=executor), "**Attempt 1**"


def waits_for_its_model(model: OpenAIServer, folder: Path) -> tuple[dict[str, Any], str]:
    return agent(EXECUTOR, "coder", model_client=openai(model.base_url), code_executor=sandbox(folder)), ""


def waits_for_approval(model: OpenAIServer, folder: Path) -> tuple[dict[str, Any], str]:
    approval = part("approval", "coderoom.approval.ModelApproval", model_client=openai(model.base_url))
    models = {"model_client": replay(python("print(1)"), "x"), "approval": approval}
    return agent(EXECUTOR, "coder", **models, code_executor=sandbox(folder)), ""


def waits_for_a_verdict(model: OpenAIServer, folder: Path) -> tuple[dict[str, Any], str]:
    return agent(REVIEWER, "reviewer", model_client=openai(model.base_url)), ""


def generates(model: OpenAIServer, folder: Path) -> tuple[dict[str, Any], str]:
    provider = "coderoom.agents.CodeGeneratorAgent"
    return agent(provider, "generator", model_client=openai(model.base_url)), ""


def autogens_own(model: OpenAIServer, folder: Path) -> tuple[dict[str, Any], str]:
    provider = "autogen_agentchat.agents.CodeExecutorAgent"
    models = {"model_client": replay(f"begun\n\n{ENDLESS}", "x"), "model_client_stream": True}
    return agent(provider, "coder", **models, code_executor=sandbox(folder)), "pass"


CASES: dict[str, Begin] = {
    "an endless loop": writes(ENDLESS),
    "an endless loop in a session": acts(ENDLESS),
    "a loop of the shell": writes(SHELL),
    "code that ignores signals": acts(STUBBORN),
    "an endless loop without a wall": local,
    "a model that does not answer": waits_for_its_model,
    "an approval that does not come": waits_for_approval,
    "a verdict that does not come": waits_for_a_verdict,
    "a generator that waits": generates,
    "AutoGen's own agent": autogens_own,
}


@contextmanager
def stuck(server: Server, driver: Studio, begin: Begin, kind: str, folder: Path) -> Iterator[Stuck]:
    with OpenAIServer([Stall(60)], repeat=True) as model:
        member, shown = begin(model, folder)
        before = below(server.pid)
        with driver.running(team(kind, member), "Go.") as run:
            if shown:
                run.wait_for_text(json.dumps(shown)[1:-1] if "\n" not in shown else "begun")
                # It is on its way to the sandbox.
                time.sleep(0.5)
            else:
                model.wait_for_requests(1)
            yield Stuck(run, {pid: what for pid, what in below(server.pid).items() if pid not in before}, model)


@pytest.mark.parametrize("kind", [CODING, ROUND])
@pytest.mark.parametrize("case", list(CASES))
def test_stop_ends_it_at_once(case: str, kind: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    with stuck(studio_server, driver, CASES[case], kind, tmp_path) as found:
        begun = time.monotonic()
        found.run.stop()
        assert wait_until_gone(found.started, SECONDS) == {}
        while found.run.next(SECONDS)["type"] != "completion":
            pass
        assert found.run.wait_for_record(SECONDS)["status"] == "stopped"
        assert time.monotonic() - begun < SECONDS
        for request in found.model.requests:
            assert request.hung_up.wait(SECONDS)


@pytest.mark.parametrize("kind", [CODING, ROUND])
@pytest.mark.parametrize(
    "case", ["an endless loop in a session", "a model that does not answer", "AutoGen's own agent"]
)
def test_a_closed_tab_ends_it(case: str, kind: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    with stuck(studio_server, driver, CASES[case], kind, tmp_path) as found:
        found.run.close_tab()
        assert wait_until_gone(found.started, SECONDS) == {}
        assert found.run.wait_for_record(SECONDS)["status"] == "stopped"
        for request in found.model.requests:
            assert request.hung_up.wait(SECONDS)


def ends(folder: Path) -> dict[str, dict[str, Any]]:
    """Teams whose runs end by themselves, and whose agents Studio does not all close."""

    def coder() -> dict[str, Any]:
        models = replay(python("print(6 * 7)"), "It is 42.")
        return agent(EXECUTOR, "coder", model_client=models, code_executor=sandbox(folder))

    own = agent(
        "autogen_agentchat.agents.CodeExecutorAgent",
        "coder",
        model_client=replay(python("print(6 * 7)"), "It is 42."),
        code_executor=sandbox(folder),
    )
    call = {"content": [{"id": "1", "name": "CodeExecutor", "arguments": json.dumps({"code": "print(6 * 7)"})}]}
    tool = part("tool", "autogen_ext.tools.code_execution.PythonCodeExecutionTool", executor=sandbox(folder))
    assistant = agent(
        "autogen_agentchat.agents.AssistantAgent",
        "assistant",
        description="It calls.",
        reflect_on_tool_use=False,
        tool_call_summary_format="{result}",
        tools=[tool],
        model_client=replay(call, function_calling=True),
    )
    failing = coder()
    failing["config"]["model_client"] = replay(python("print(6 * 7)"))
    return {
        "ours": team(ROUND, coder()),
        "nested": team(ROUND, team(ROUND, coder(), name="inner"), turns=1),
        "nested in ours": team(CODING, team(ROUND, coder(), name="inner"), turns=1),
        "AutoGen's own agent": team(ROUND, own),
        "AutoGen's own agent in ours": team(CODING, own),
        "a tool of AutoGen's": team(ROUND, assistant),
        "one that fails": team(ROUND, team(ROUND, failing, name="inner"), turns=1),
    }


@pytest.mark.parametrize("which", list(ends(Path())))
def test_nothing_is_left_after_a_run(which: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    before = below(studio_server.pid)
    run = driver.run(ends(tmp_path)[which], "Compute it.")
    assert run.record()["status"] == ("error" if which == "one that fails" else "complete")
    assert which == "one that fails" or "42" in json.dumps(run.sent[-1])
    left = {pid: what for pid, what in below(studio_server.pid).items() if pid not in before and "janitor" not in what}
    assert wait_until_gone(left, SECONDS) == {}


def test_no_connection_to_a_model_is_left_after_a_run(studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    server = next(pid for pid, what in below(studio_server.pid).items() if "coderoom.studio._serve" in what)

    def connections() -> int:
        files = Path(f"/proc/{server}/fd").iterdir()
        return sum(str(file.readlink()).startswith("socket:") for file in files)

    with OpenAIServer(["It is 42."], repeat=True) as model:
        counts = []
        for _ in range(3):
            assistant = agent(
                "autogen_agentchat.agents.AssistantAgent",
                "assistant",
                description="It answers.",
                reflect_on_tool_use=False,
                tool_call_summary_format="{result}",
                model_client=openai(model.base_url),
            )
            coder = agent(EXECUTOR, "coder", model_client=openai(model.base_url), code_executor=sandbox(tmp_path))
            assert driver.run(team(CODING, assistant, coder), "Compute it.").record()["status"] == "complete"
            time.sleep(1)
            counts.append(connections())
    assert counts[-1] <= counts[0]


def test_nothing_is_left_of_a_killed_server(tmp_path: Path) -> None:
    with start_studio(tmp_path / "app", cwd=tmp_path) as server:
        driver = Studio(server.url)
        with stuck(server, driver, CASES["an endless loop in a session"], CODING, tmp_path / "work") as found:
            started = below(server.pid)
            assert found.started
            os.kill(next(pid for pid, what in started.items() if "coderoom.studio._serve" in what), signal.SIGKILL)
            assert wait_until_gone(found.started, 10) == {}
        driver.close()
    assert wait_until_gone(started, 10) == {}


def test_nothing_is_left_of_a_server_that_is_ended(tmp_path: Path) -> None:
    with start_studio(tmp_path / "app", cwd=tmp_path) as server:
        driver = Studio(server.url)
        with stuck(server, driver, CASES["an endless loop in a session"], CODING, tmp_path / "work") as found:
            started = below(server.pid)
            assert found.started
            server.end()
            assert wait_until_gone(started, 10) == {}
        driver.close()


@pytest.mark.parametrize("kind", [CODING, ROUND])
def test_stop_ends_a_wait_for_a_person(kind: str, driver: Studio, tmp_path: Path) -> None:
    person = agent("autogen_agentchat.agents.UserProxyAgent", "person", description="A person.")
    coder = agent(EXECUTOR, "coder", model_client=replay("Hello back."), code_executor=sandbox(tmp_path))
    with driver.running(team(kind, person, coder), "Go.") as answered:
        while answered.next()["type"] != "input_request":
            pass
        answered.send(type="input_response", response="Hello.")
        assert answered.wait()["status"] == "complete"
        assert texts(answered.sent)[-2:] == ["Hello.", "Hello back."]
    with driver.running(team(kind, person, coder), "Go.") as stopped:
        while stopped.next()["type"] != "input_request":
            pass
        stopped.stop()
        while stopped.next(SECONDS)["type"] != "completion":
            pass
        assert stopped.wait_for_record(SECONDS)["status"] == "stopped"

"""How runs end in Studio's playground, and that nothing is left then."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.agents.helpers import python
from tests.studio.driving import Run, Studio, texts
from tests.studio.processes import below, connections, wait_until_gone
from tests.studio.teams import (
    ACT,
    CODING,
    EXECUTOR,
    REVIEWER,
    ROUND,
    agent,
    openai,
    part,
    replay,
    sandbox,
    team,
    team_agent,
)
from tests.support.openai_server import OpenAIServer, Stall
from tests.support.studio import Studio as Server
from tests.support.studio import wait_for

pytestmark = pytest.mark.studio

SECONDS = 10.0
"""How long to wait for the end of a run that is stopped. It takes less than two on a quiet machine."""

# All of these touch a file `begun` in their folder when they run.
ENDLESS = python("open('begun', 'w').close()\nwhile True:\n    pass")
STUBBORN = python(
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "if os.fork() == 0:\n    os.setsid()\n    open('begun', 'w').close()\n"
    "while True:\n    try:\n        time.sleep(1)\n    except BaseException:\n        pass"
)
SHELL = "```sh\n: > begun\nwhile true; do :; done\n```"


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


Begin = Callable[[OpenAIServer, Path], dict[str, Any]]
"""Makes what gets stuck; its model is the service, or its code works in the folder."""


def writes(code: str) -> Begin:
    def begin(model: OpenAIServer, folder: Path) -> dict[str, Any]:
        return agent(EXECUTOR, "coder", model_client=replay(code, "x"), code_executor=sandbox(folder))

    return begin


def acts(code: str) -> Begin:
    def begin(model: OpenAIServer, folder: Path) -> dict[str, Any]:
        models = {"model_client": replay(code, "x"), "model_client_stream": True}
        return agent(ACT, "coder", **models, code_executor=sandbox(folder))

    return begin


def local(model: OpenAIServer, folder: Path) -> dict[str, Any]:
    executor = part("code_executor", "coderoom.executors.LocalCodeExecutor", work_dir=str(folder))
    return agent(EXECUTOR, "coder", model_client=replay(ENDLESS, "x"), code_executor=executor)


def autogens_own(model: OpenAIServer, folder: Path) -> dict[str, Any]:
    provider = "autogen_agentchat.agents.CodeExecutorAgent"
    models = {"model_client": replay(ENDLESS, "x"), "model_client_stream": True}
    return agent(provider, "coder", **models, code_executor=sandbox(folder))


def waits_for_its_model(model: OpenAIServer, folder: Path) -> dict[str, Any]:
    return agent(EXECUTOR, "coder", model_client=openai(model.base_url), code_executor=sandbox(folder))


def waits_for_approval(model: OpenAIServer, folder: Path) -> dict[str, Any]:
    approval = part("approval", "coderoom.approval.ModelApproval", model_client=openai(model.base_url))
    models = {"model_client": replay(python("print(1)"), "x"), "approval": approval}
    return agent(EXECUTOR, "coder", **models, code_executor=sandbox(folder))


def waits_for_a_verdict(model: OpenAIServer, folder: Path) -> dict[str, Any]:
    return agent(REVIEWER, "reviewer", model_client=openai(model.base_url))


def generates(model: OpenAIServer, folder: Path) -> dict[str, Any]:
    provider = "coderoom.agents.CodeGeneratorAgent"
    return agent(provider, "generator", model_client=openai(model.base_url))


RUNNING: dict[str, Begin] = {
    "an endless loop": writes(ENDLESS),
    "an endless loop in a session": acts(ENDLESS),
    "a loop of the shell": writes(SHELL),
    "code that ignores signals": acts(STUBBORN),
    "an endless loop without a wall": local,
    "AutoGen's own agent": autogens_own,
}
WAITING: dict[str, Begin] = {
    "a model that does not answer": waits_for_its_model,
    "an approval that does not come": waits_for_approval,
    "a verdict that does not come": waits_for_a_verdict,
    "a generator that waits": generates,
}


@contextmanager
def stuck(server: Server, driver: Studio, case: str, kind: str, folder: Path) -> Iterator[Stuck]:
    """A run that is in the midst of it: its code runs, or its model was asked."""
    with OpenAIServer([Stall(60)], repeat=True) as model:
        before = below(server.pid)
        with driver.running(team(kind, (RUNNING | WAITING)[case](model, folder)), "Go.") as run:
            if case in RUNNING:
                wait_for((folder / "begun").exists)
            else:
                model.wait_for_requests(1)
            started = {pid: what for pid, what in below(server.pid).items() if pid not in before}
            assert started or case in WAITING
            yield Stuck(run, started, model)


@pytest.mark.parametrize(("case", "kind"), list(zip([*RUNNING, *WAITING], cycle([CODING, ROUND]), strict=False)))
def test_stop_ends_it_at_once(case: str, kind: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    with stuck(studio_server, driver, case, kind, tmp_path) as found:
        found.run.stop()
        assert wait_until_gone(found.started, SECONDS) == {}
        while found.run.next(SECONDS)["type"] != "completion":
            pass
        assert found.run.wait_for_record(SECONDS)["status"] == "stopped"
        for request in found.model.requests:
            assert request.hung_up.wait(SECONDS)


@pytest.mark.parametrize("kind", [CODING, ROUND])
def test_output_before_a_stop_is_streamed_and_stored(kind: str, driver: Studio, tmp_path: Path) -> None:
    coder = writes(python("import time\nprint('begun', flush=True)\ntime.sleep(60)"))
    with OpenAIServer([]) as model, driver.running(team(kind, coder(model, tmp_path)), "Go.") as run:
        while "begun" not in run.chunks:
            run.next()
        run.stop()
        assert run.wait_for_record()["status"] == "stopped"
        wait_for(lambda: "exit code" in texts(run.stored())[-1])
        last = texts(run.stored())[-1]
    assert "begun" in last
    assert "cancelled, exit code" in last


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("an endless loop in a session", CODING),
        ("a model that does not answer", ROUND),
        ("AutoGen's own agent", CODING),
    ],
)
def test_a_closed_tab_ends_it(case: str, kind: str, studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    with stuck(studio_server, driver, case, kind, tmp_path) as found:
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
        "for an agent": team(ROUND, team_agent(team(ROUND, coder(), name="inner")), turns=1),
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
    left = [pid for pid in below(studio_server.pid) if pid not in before]
    assert wait_until_gone(left, SECONDS) == {}


def test_no_folder_of_autogens_local_executor_is_left(driver: Studio) -> None:
    code = python("import os\nprint(os.getcwd())")
    place = part("code_executor", "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor", timeout=60)
    own = agent(
        "autogen_agentchat.agents.CodeExecutorAgent", "coder", model_client=replay(code, "There."), code_executor=place
    )
    run = driver.run(team(CODING, own), "Where?")
    assert run.record()["status"] == "complete"
    (folder,) = re.findall(r"^/\S+$", texts(run.sent)[2], re.MULTILINE)
    wait_for(lambda: not Path(folder).exists(), SECONDS)


def test_no_connection_to_a_model_is_left_after_a_run(studio_server: Server, driver: Studio, tmp_path: Path) -> None:
    with OpenAIServer(["It is 42."], repeat=True) as model:
        driver.get("/teams/")  # This has a connection as well.
        before = connections(studio_server.server_pid)
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
            wait_for(lambda: connections(studio_server.server_pid) <= before, 10)


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

"""The config of a `CodeActAgent`: nothing that was given is lost, and what is wrong is told with its place."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from autogen_core import ComponentModel
from autogen_core.memory import ListMemory
from autogen_core.model_context import HeadAndTailChatCompletionContext
from autogen_core.tools import FunctionTool, StaticWorkbench
from pydantic import ValidationError

from coderoom.agents import BranchTests, CodeActAgent, CodeActAgentConfig
from coderoom.approval import NeverApprove, RuleApproval
from coderoom.configs import ReplayModel, check_team
from coderoom.executors import SandboxCodeExecutor
from coderoom.models.budgets import Budget
from tests.agents.acting import MakeActor, Multiply, Shop, add, outputs, subtraction
from tests.agents.helpers import TASK, Approver, python, stream

EVERYTHING: dict[str, Any] = {
    "description": "Sells apples.",
    "system_message": "Be brief.",
    "model_client_stream": True,
    "code_format": "execute",
    "max_steps": 3,
    "max_tokens": 1000,
    "max_seconds": 20.5,
    "on_error": "rollback",
    "max_output_chars": 300,
    "initial_variables": {"x": [1, "a"]},
    "initial_imports": {"m": "math", "path": "os.path"},
    "branches": 3,
    "skills": "~/skills",
    "call_rules": [{"function": "delete_*", "effect": "write", "arguments": {"path": "/tmp/.*"}, "inverse": ""}],
    "check_types": True,
    "tools_in_prompt": "names",
    "max_tool_tokens": 900,
}


@pytest.fixture(autouse=True)
def _trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEN_ALLOWED_PROVIDER_NAMESPACES", "tests")
    # AutoGen warns of each function whose source stands in a config.
    warnings.filterwarnings("ignore", message="[\\s\\S]*FunctionTool")


def reload(agent: CodeActAgent) -> CodeActAgent:
    dumped = json.loads(agent.dump_component().model_dump_json())
    assert dumped["provider"] == "coderoom.agents.CodeActAgent"
    loaded = CodeActAgent.load_component(ComponentModel(**dumped))
    assert isinstance(loaded, CodeActAgent)
    return loaded


def untyped(a):  # type: ignore[no-untyped-def]
    return a


def of_any(a: Any) -> int:
    """Its source alone does not define it."""
    return 1


def test_every_argument_comes_back(tmp_path: Path) -> None:
    agent = CodeActAgent(
        "actor",
        ReplayModel(["Hello."], {"function_calling": True}),
        SandboxCodeExecutor(tmp_path, timeout=7, preload=["json"]),
        tools=[Multiply(3)],
        workbench=StaticWorkbench([Multiply(4)]),
        model_context=HeadAndTailChatCompletionContext(2, 5),
        approval_func=RuleApproval([]),
        memory=[ListMemory("notes")],
        handoffs=["boss"],
        budget=Budget(cells=9),
        branch_judge=BranchTests("assert True"),
        call_approval=NeverApprove(),
        **EVERYTHING,
    )
    config = agent.dump_component().config
    assert set(config) == set(CodeActAgentConfig.model_fields)
    for key, value in EVERYTHING.items():
        assert config[key] == value
    assert reload(agent).dump_component().model_dump() == agent.dump_component().model_dump()


def test_a_function_tool_comes_back_as_often_as_it_is_dumped() -> None:
    def twice(number: int) -> int:
        """Double a number."""
        return 2 * number

    agent = CodeActAgent("actor", ReplayModel(["Hello."]), tools=[twice, FunctionTool(twice, "Double.", name="double")])
    dumped = agent.dump_component().model_dump()
    again = reload(agent)
    assert again.dump_component().model_dump() == dumped
    assert reload(again).dump_component().model_dump() == dumped


@pytest.mark.parametrize("system_message", [None, "", CodeActAgent.DEFAULT_SYSTEM_MESSAGE])
async def test_defaults_and_nothing_come_back(system_message: str | None) -> None:
    agent = CodeActAgent("actor", ReplayModel(["Hello."]), system_message=system_message)
    again = reload(agent)
    assert again.dump_component().model_dump() == agent.dump_component().model_dump()
    assert (again.dump_component().config["system_message"] or None) == (system_message or None)
    plain = CodeActAgent._from_config(CodeActAgentConfig(name="a", model_client=ReplayModel([]).dump_component()))
    assert plain.dump_component().config["system_message"] == CodeActAgent.DEFAULT_SYSTEM_MESSAGE


async def test_tools_and_workbenches_work_after_a_round_trip(actor: MakeActor) -> None:
    code = "print(add(40, 2), multiply(2, 3), subtract(9, 4), treble(1, 1))"
    treble = Multiply(3)
    treble._name = "treble"
    agent = actor(
        ReplayModel([python(code), "Done."]),
        tools=[add, Multiply(2)],
        workbench=[StaticWorkbench([subtraction()]), StaticWorkbench([treble])],
    )
    with pytest.raises(ValueError, match="under the name 'multiply'"):  # A dump does not hold a changed name.
        await reload(agent).start()
    agent = actor(
        ReplayModel([python(code.partition(", treble")[0] + ")"), "Done."]),
        tools=[add, Multiply(2)],
        workbench=StaticWorkbench([subtraction()]),
    )
    again = reload(agent)
    for either in (agent, again):
        [output] = outputs(await stream(either, TASK))
        assert output == "42 {'value': 12} 5\n"
    await again.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"approval_func": Approver(True)}, "a function cannot be part of a config"),
        ({"tools": [untyped]}, "Cannot serialize CodeActAgent with the tool <function untyped"),
        ({"tools": [print]}, "it is not a plain function"),
        ({"tools": [Shop().price]}, "it is not a plain function"),
        ({"tools": [reload]}, "uses names from around it: json"),
        ({"tools": [of_any]}, "name 'Any' is not defined"),
    ],
)
def test_what_cannot_stand_in_a_config(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CodeActAgent("actor", ReplayModel([]), **arguments).dump_component()


@pytest.mark.parametrize(
    "wrong",
    [{"max_step": 3}, {"max_steps": 0}, {"code_format": "tag"}, {"on_error": "undo"}, {"max_seconds": -1}],
)
def test_a_wrong_config_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        CodeActAgentConfig(name="a", model_client=ReplayModel([]).dump_component(), **wrong)


def test_a_users_own_agent_is_dumped_under_its_own_name() -> None:
    assert Seller("seller", ReplayModel([])).dump_component().provider.endswith("test_code_act_config.Seller")


class Seller(CodeActAgent):
    """A user's own agent."""


TEAM = """\
provider: autogen_agentchat.teams.RoundRobinGroupChat
config:
  participants:
    - provider: coderoom.agents.CodeActAgent
      config:
        name: actor
        model_client: {provider: coderoom.configs.ReplayModel, config: {replies: []}}
        code_executor: {provider: coderoom.executors.SandboxCodeExecutor, config: {timeout: 5}}
        workbench:
          - provider: autogen_ext.tools.mcp.McpWorkbench
            config:
              server_params: {type: StdioServerParams, command: uvx, args: [mcp-server-time]}
        model_context: {provider: autogen_core.model_context.BufferedChatCompletionContext, config: {buffer_size: 5}}
        approval: {provider: coderoom.approval.RuleApproval, config: {default: allow, rules: []}}
        code_format: execute
        max_steps: 5
        max_tokens: 1000
        max_seconds: 60
        on_error: rollback
        max_output_chars: 500
"""


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("max_steps: 5", "max_step: 5", "max_step", "did you mean 'max_steps'"),
        ("max_steps: 5", "max_steps: 0", "max_steps", "expected at least 1, got 0"),
        ("code_format: execute", "code_format: tags", "code_format", "'fence' or 'execute'"),
        ("tools.mcp.McpWorkbench", "tools.mcp.McpWorkbank", "workbench[0].provider", "McpWorkbench"),
        ("command: uvx", "comand: uvx", "workbench[0].config.server_params", "command"),
        ("autogen_ext.tools", "evil_ext.tools", "workbench[0].provider", "not trusted"),
        ("autogen_ext.tools.mcp.McpWorkbench", "coderoom.agents.ReviewerAgent", "workbench[0].provider", "a workbench"),
    ],
)
def test_a_team_file_is_checked_down_to_its_workbenches(
    tmp_path: Path, old: str, new: str, path: str, message: str
) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(TEAM)
    assert check_team(file) == []
    file.write_text(TEAM.replace(old, new))
    problems = check_team(file)
    told = [f"{problem.path}: {problem.message}" for problem in problems]
    assert any(f"participants[0].config.{path}" in line and message in line for line in told), told

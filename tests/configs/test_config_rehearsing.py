"""What the constructors of a team refuse is told by a check of its file, which runs nothing of it."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from coderoom.configs import ReplayModel, check_team, load_team
from coderoom.errors import ConfigError

AGENT = "config.participants[0]"

MODEL = "model_client: {provider: OpenAIChatCompletionClient, config: {model: gpt-4o}}"
LOCAL = "code_executor: {provider: coderoom.executors.LocalCodeExecutor, config: {}}"
AUTOGENS = "code_executor: {provider: autogen_ext.code_executors.local.LocalCommandLineCodeExecutor, config: %s}"
SANDBOX = "code_executor: {provider: coderoom.executors.SandboxCodeExecutor, config: {%s}}"
JUDGE = "branch_judge: {provider: coderoom.agents.BranchTests, config: {tests: 'assert f(1) == 1'}}"
APPROVAL = "call_approval: {provider: coderoom.approval.AlwaysApprove, config: {}}"


def tool(source: str, name: str = "pay") -> str:
    config = (
        f"name: {name}, description: x, source_code: {source!r}, global_imports: [], has_cancellation_support: false"
    )
    return f"tools: [{{provider: autogen_core.tools.FunctionTool, config: {{{config}}}}}]"


PAY = tool("def pay(n: int) -> int: return n")


def team(folder: Path, *agents: str, team_keys: str = "") -> Path:
    path = folder / "team.yaml"
    lines = "".join(f"    - {each}\n" for each in agents)
    path.write_text(f"provider: coderoom.teams.CodingTeam\nconfig:\n  participants:\n{lines}{team_keys}")
    return path


def actor(keys: str) -> str:
    return f"{{provider: coderoom.agents.CodeActAgent, config: {{name: actor, {keys}}}}}"


def coder(keys: str) -> str:
    return f"{{provider: coderoom.agents.CodeExecutorAgent, config: {{name: coder, {keys}}}}}"


@pytest.mark.parametrize(
    ("agent", "key", "words"),
    [
        (actor(f"eager: true, model_client_stream: true, {SANDBOX % 'policy: restricted'}"), "eager", "policy='open'"),
        (actor(JUDGE), "branch_judge", "set branches to 2 or more"),
        (actor(f"branches: 2, {LOCAL}"), "branches", "use SandboxCodeExecutor(state='session')"),
        (actor(f"on_error: rollback, {AUTOGENS % '{}'}"), "on_error", "checkpoints"),
        (actor(f"{PAY}, {AUTOGENS % '{}'}"), "tools", "not 'LocalCommandLineCodeExecutor'"),
        (actor("call_rules: [{function: pay, effect: write}]"), "call_rules", "needs a call_approval"),
        (actor(f"{PAY}, {APPROVAL}, call_rules: [{{function: pay, effect: write, inverse: back}}]"), "", "back()"),
        (actor(tool("@Effect('write')\ndef pay() -> None: ...")), "", "declares the effect 'write'"),
        (actor(tool("@Effect('wirte')\ndef pay() -> None: ...")), "tools[0]", "an effect is one of 'read', 'write'"),
        (actor('tools: ["def pay(n) -> int: return n"]'), "tools[0]", "the parameter 'n' of pay() has no annotation"),
        (actor('tools: ["x = 1"]'), "tools[0]", "not one function"),
        (actor(tool("def pay(:")), "tools[0].config.source_code", "is not Python"),
        (actor(f"{tool('def f() -> None: ...', 'search_tools')}, tools_in_prompt: search"), "tools", "Rename it"),
        (actor(f"skills: work/skills, {SANDBOX % 'work_dir: work'}"), "skills", "take one outside of it"),
        (actor("initial_imports: {np: 'numpy!'}"), "initial_imports", "the name of a module"),
        (coder(f"max_retries_on_error: 2, {LOCAL}"), "max_retries_on_error", "needs a model_client"),
        (coder(f"{MODEL.replace('gpt-4o', 'o1-mini')}, handoffs: [other], {LOCAL}"), "handoffs", "call functions"),
    ],
)
def test_what_an_agent_refuses_is_told_as_when_it_is_loaded(tmp_path: Path, agent: str, key: str, words: str) -> None:
    path = team(tmp_path, agent)
    [problem] = check_team(path, env={})
    assert (problem.path, problem.line) == (f"{AGENT}.config.{key}" if key else AGENT, 4)
    assert words in problem.message
    if "Effect" not in agent and "def pay(:" not in agent:  # AutoGen says it in its own words.
        with pytest.raises(ConfigError) as caught, warnings.catch_warnings(action="ignore"):  # AutoGen's.
            load_team(path, ReplayModel([]), env={})
        assert caught.value.problems == (problem,)


def test_what_a_team_refuses_is_told(tmp_path: Path) -> None:
    agents = actor(SANDBOX % "timeout: 5"), coder(SANDBOX % "timeout: 6")
    [problem] = check_team(team(tmp_path, *agents, team_keys="  shared_session: true\n"), env={})
    assert (problem.path, problem.line) == ("", 1)
    assert "'actor' and 'coder' differ in 'timeout'" in problem.message


def test_a_check_runs_nothing_of_the_file_and_needs_none_of_its_services(tmp_path: Path) -> None:
    ran, made = tmp_path / "ran", tmp_path / "made"
    server = f"{{type: StdioServerParams, command: touch, args: [{ran}]}}"
    bench = f"workbench: [{{provider: autogen_ext.tools.mcp.McpWorkbench, config: {{server_params: {server}}}}}]"
    agents = (
        actor(f"{tool(f'open({str(ran)!r}, chr(119)).close()' + chr(10) + 'def pay() -> None: ...')}, {bench}"),
        coder(f"{MODEL}, {AUTOGENS % f'{{work_dir: {made}}}'}"),
    )
    assert check_team(team(tmp_path, *agents), env={}) == []
    assert not ran.exists()
    assert not made.exists()

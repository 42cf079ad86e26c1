"""Private names of AutoGen are in one module, and AutoGen has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat import conditions
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent, SocietyOfMindAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.tools import FunctionTool
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

from coderoom._util import autogen
from coderoom.agents import CodeExecutorAgent as OurCodeExecutorAgent
from tests.support.commands import ROOT

MODULE = "coderoom/_util/autogen.py"
# Attributes of AutoGen's objects. CodeRoom's own classes may have some of these names too, and use them on `self`.
ATTRIBUTES = {
    *[
        "_actor",
        "_code_executor",
        "_create_args",
        "_func",
        "_input_responses",
        "_is_running",
        "_model_client",
        "_participants",
    ],
    *["_from_config_past_version", "_mounts", "_override_name_to_original", "_running", "_server_params", "_signature"],
    *["_started", "_team", "_transport", "_work_dir"],
    autogen.CONDITIONS,
    autogen.STOP_MESSAGES,
    *(name for name in autogen.COUNTERS if name != "_terminated"),
}
# Most files have none of these words, and need not be parsed.
SUSPECT = re.compile(rf"from autogen_.*\b_|\b({'|'.join(ATTRIBUTES)})\b")


def private_names(source: str) -> Iterator[str]:
    if not SUSPECT.search(source):
        return
    tree = ast.parse(source)
    parts_of_texts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autogen_"):
            names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
            yield from (f"{node.module}: {name}" for name in names if name.startswith("_"))
        elif isinstance(node, ast.Constant) and node.value in ATTRIBUTES and node not in parts_of_texts:
            yield str(node.value)
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            owner = node.value
            is_own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
            is_inner = isinstance(owner, ast.Attribute) and owner.attr == "_agent"  # A `HumanApprovedAgent`'s agent.
            if not is_own and not is_inner:
                yield node.attr


@pytest.mark.slow
def test_no_other_module_has_private_names_of_autogen() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "coderoom").rglob("*.py")]
    found = {
        file: names
        for file in files
        if file != MODULE and (names := sorted(set(private_names((ROOT / file).read_text()))))
    }
    assert found == {}


def length_of(text: str) -> int:
    return len(text)


@pytest.mark.filterwarnings("ignore:(Using LocalCommandLineCodeExecutor|No approval function):UserWarning")
async def test_autogen_has_each_of_them(tmp_path: Path) -> None:
    """The imports of the module are checked by importing it."""
    client = ReplayChatCompletionClient(["Hello."])
    executor = LocalCommandLineCodeExecutor(work_dir=tmp_path)
    assistant = AssistantAgent("assistant", client)
    team = RoundRobinGroupChat([assistant])
    openai: Any = OpenAIChatCompletionClient(model="gpt-4o", api_key="none")
    coder = CodeExecutorAgent("coder", executor)
    assert list(autogen.agents_of(team)) == [assistant]
    society = RoundRobinGroupChat([SocietyOfMindAgent("society", team, client)])
    assert list(autogen.agents_of(society, hidden=True))[:1] == [assistant]
    assert autogen.model_client_of(assistant) is client
    assert autogen.executor_of(coder) is executor
    assert autogen.work_dir_of(executor) == tmp_path
    assert not autogen.is_running(team)
    workbench = McpWorkbench(StdioServerParams(command="none"))
    assert not autogen.is_started(workbench)
    assert hasattr(workbench, "_actor")
    assert hasattr(workbench, "_override_name_to_original")
    assert autogen.server_params_of(workbench) == StdioServerParams(command="none")
    function, signature = autogen.function_of(FunctionTool(length_of, "Counts."))
    assert function is length_of
    assert signature is not None
    await executor.start()
    assert autogen.is_executor_started(executor)
    await executor.stop()
    assert not autogen.is_executor_started(executor)
    assert autogen.transports_of(openai)
    assert hasattr(openai, "_resolved_model")
    both = conditions.MaxMessageTermination(1) & conditions.TokenUsageTermination(1)
    counted = [*getattr(both, autogen.CONDITIONS), conditions.ExternalTermination()]
    assert hasattr(both, autogen.STOP_MESSAGES)
    names = {name for condition in counted for name in vars(condition)}
    assert names >= set(autogen.COUNTERS)


async def test_what_autogen_says_in_words_is_understood() -> None:
    class Speaker(BaseChatAgent):
        produced_message_types = (TextMessage,)

        async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
            return Response(chat_message=TextMessage(content="all (done)\nnow", source=self.name))

        async def on_reset(self, cancellation_token: Any) -> None:
            pass

    async def reason(condition: Any = None, turns: int | None = None) -> str | None:
        team = RoundRobinGroupChat([Speaker("a", "b")], termination_condition=condition, max_turns=turns)
        return (await team.run(task="go")).stop_reason

    assert await reason(turns=1) == autogen.AFTER_ONE_TURN
    turns, messages = await reason(turns=2), await reason(conditions.MaxMessageTermination(2))
    assert [autogen.is_at_its_limit(turns), autogen.is_at_its_turns(turns)] == [True, True]
    assert [autogen.is_at_its_limit(messages), autogen.is_at_its_turns(messages)] == [True, False]
    mention = await reason(conditions.TextMentionTermination("(done)\nnow"))
    assert autogen.text_mentioned(mention) == "(done)\nnow"
    assert not autogen.is_at_its_limit(mention)
    with pytest.raises(ValueError, match="model") as refusal:
        OpenAIChatCompletionClient(model="nobody-knows", api_key="test")
    assert autogen.wants_model_info(refusal.value)
    assert OurCodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE == CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE

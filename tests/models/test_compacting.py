"""Conversations that stay below a limit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    RequestUsage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from autogen_ext.models.replay import ReplayChatCompletionClient
from PIL import Image as Picture

from coderoom._util.autogen import clients_of
from coderoom.agents import CodeActAgent, CodeExecutorAgent
from coderoom.configs import load_team
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.models import CompactingContext
from coderoom.teams import CodingTeam
from tests.support.openai_server import OpenAIServer, Request

TASK = UserMessage(content="Do it, and forget nothing of this.", source="user")
Filled = list[list[LLMMessage]]


def step(number: int, size: int = 3_000) -> list[LLMMessage]:
    return [
        AssistantMessage(content=f"```python\nstep({number})\n```", source="coder"),
        UserMessage(content=f"output {number} begins\n{'x' * size}\noutput {number} ends", source="coder"),
    ]


async def conversation(context: CompactingContext, messages: Sequence[LLMMessage]) -> list[list[LLMMessage]]:
    """What the model would be sent after each message."""
    sent = []
    for message in messages:
        await context.add_message(message)
        sent.append(await context.get_messages())
    return sent


def characters(messages: Sequence[LLMMessage]) -> int:
    return sum(len(str(message.content)) for message in messages)


async def test_a_long_conversation_stays_below_the_limit_and_code_with_its_output(tmp_path: Path) -> None:
    messages = [TASK, *(each for number in range(100) for each in step(number))]
    sent = await conversation(CompactingContext(10_000, folder=tmp_path), messages)
    assert max(map(characters, sent)) <= 30_000
    files = {path.name: path.read_text() for path in (tmp_path / ".coderoom").iterdir()}
    for now in sent:
        assert now[0] == TASK
        kinds = [type(each) for each in now if not str(each.content).startswith("[")]
        assert kinds[1::2] == [AssistantMessage] * len(kinds[1::2])
        for code, output in pairwise(now):
            if isinstance(code, AssistantMessage):
                number = re.findall(r"step\((\d+)\)", str(code.content))
                assert re.findall(r"output (\d+)", str(output.content)) == number * 2
                named = re.search(r"the whole output is in \.coderoom/([\w.-]+)", str(output.content))
                assert named is None or f"output {number[0]} begins\n{'x' * 3_000}" in files[named[1]]
    [notice] = [str(each.content) for each in sent[-1] if "earlier messages left out; see" in str(each.content)]
    assert "step(" in files[notice.rpartition("/")[2].rstrip("]")]
    # A resumed run, and one that was saved in between, send the same.
    assert await conversation(CompactingContext(10_000, folder=tmp_path), messages) == sent
    half, again = CompactingContext(10_000, folder=tmp_path), CompactingContext(10_000, folder=tmp_path)
    await conversation(half, messages[:101])
    await again.load_state(await half.save_state())
    assert await conversation(again, messages[101:]) == sent[101:]
    # Services keep what a request has in common with the one before; it is seldom another one.
    assert sum(now[: len(before)] != before for before, now in pairwise(sent)) < 30


async def test_what_a_person_says_and_what_fits_stays(tmp_path: Path) -> None:
    long = UserMessage(content="As I said: " + "z" * 9_000, source="user")
    messages: list[LLMMessage] = [TASK, *step(1, 2_900), long, *step(2, 2_900), *step(3), *step(4, 2_900)]
    [*before, after] = await conversation(CompactingContext(6_400), messages)
    assert before[-1] == messages[:-1]
    assert (after[:2], after[3]) == (messages[:2], long)
    assert "characters left out ..." in str(after[2].content)
    [kept] = await conversation(CompactingContext(50_000), [TASK])
    assert kept == [TASK]
    with pytest.raises(RequestError, match="at least 1,000"):
        CompactingContext(10)


async def test_pictures_count_and_are_left_out() -> None:
    picture = UserMessage(content=["a plot", Image.from_pil(Picture.new("RGB", (1, 1)))], source="coder")
    plots = [each for number in range(5) for each in (*step(number, 10)[:1], picture)]
    sent = await conversation(CompactingContext(3_500), [TASK, *plots])
    assert str(sent[-1][2].content) == "a plot\n[A picture that is left out.]"
    assert sent[-1][-1] == picture


async def test_calls_of_tools_keep_their_results() -> None:
    """With an agent of AutoGen, whose service refuses a result without its call."""

    def look(number: int) -> str:
        """Look at something."""
        return f"result {number} " + "y" * 2_000

    calls = [
        CreateResult(
            finish_reason="function_calls",
            content=[FunctionCall(id=f"c{number}", name="look", arguments=f'{{"number": {number}}}')],
            usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
            cached=False,
        )
        for number in range(30)
    ]
    info = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False)
    model = ReplayChatCompletionClient([*calls, "Seen."], model_info=info)
    agent = AssistantAgent(
        "agent",
        model,
        tools=[FunctionTool(look, "Look at something.")],
        model_context=CompactingContext(2_000),
        max_tool_iterations=40,
    )
    await agent.on_messages([TextMessage(content="Look.", source="user")], CancellationToken())
    for call in model.create_calls:
        asked: list[LLMMessage] = call["messages"]
        made = [each.id for message in asked if isinstance(message, AssistantMessage) for each in message.content]  # type: ignore[union-attr]
        results = [message for message in asked if isinstance(message, FunctionExecutionResultMessage)]
        assert [each.call_id for message in results for each in message.content] == made
        assert characters(asked) < 8_000
    assert "29" in str(model.create_calls[-1]["messages"])


@pytest.mark.parametrize("kind", [CodeActAgent, CodeExecutorAgent])
async def test_code_reads_what_was_left_out(tmp_path: Path, kind: type[CodeActAgent | CodeExecutorAgent]) -> None:
    prints = [f"```python\nprint('{number} ' + 'x' * 2_500)\n```" for number in range(4)]
    reads = "```python\nimport glob; print([open(name).read()[:2] for name in glob.glob('.coderoom/*')])\n```"
    words = "Done."
    replies = (
        [*prints, reads, words]
        if kind is CodeActAgent
        else [each for code in (*prints, reads) for each in (code, words)]
    )
    model = ReplayChatCompletionClient(replies)
    executor = SandboxCodeExecutor(work_dir=tmp_path, workspace_mode="overlay")
    agent = kind("coder", code_executor=executor, model_client=model, model_context=CompactingContext(2_600))
    try:
        for task in ["Print."] if kind is CodeActAgent else list("abcde"):
            answer = await agent.on_messages([TextMessage(content=task, source="user")], CancellationToken())
        assert "'0 '" in answer.chat_message.to_text()
        assert "the whole output is in .coderoom/earlier-" in str(model.create_calls[-1]["messages"])
        assert list(tmp_path.iterdir()) == []
        assert len(await executor.changes()) == 0
    finally:
        await agent.close()
        await executor.stop()


async def test_what_a_branch_leaves_out_is_there_if_it_wins(tmp_path: Path) -> None:
    long = [f"```python\nprint('{number} ' + 'x' * 2_500)\n```" for number in range(2)]
    bad = "```python\nprint('2 ' + 'x' * 2_500)\n1 / 0\n```"
    good = "```python\nprint('3 ' + 'x' * 2_500)\n```"
    reads = "```python\nimport glob; print(sorted(open(name).read()[:2] for name in glob.glob('.coderoom/*')))\n```"
    model = ReplayChatCompletionClient([*long, bad, good, bad, reads, "Done."])
    executor = SandboxCodeExecutor(work_dir=tmp_path, workspace_mode="overlay")
    context = CompactingContext(3_400)
    agent = CodeActAgent("coder", code_executor=executor, model_client=model, model_context=context, branches=2)
    try:
        answer = await agent.on_messages([TextMessage(content="Print.", source="user")], CancellationToken())
        assert "['0 ', '1 ']" in answer.chat_message.to_text()
        assert "the whole output is in .coderoom/earlier-" in str(model.create_calls[-1]["messages"])
    finally:
        await agent.close()
        await executor.stop()


async def test_a_result_that_fills_the_room_is_shortened_at_once(tmp_path: Path) -> None:
    long = "begins " + "y" * 50_000 + " ends"
    results = [FunctionExecutionResult(content=long, name="look", call_id=str(number)) for number in range(2)]
    [kept] = await conversation(
        CompactingContext(6_000, folder=tmp_path), [FunctionExecutionResultMessage(content=results)]
    )
    assert characters(kept) < 6_000
    for result in kept[0].content:
        assert isinstance(result, FunctionExecutionResult)
        [name] = re.findall(r"the whole output is in (\.coderoom/[\w.-]+)", result.content)
        assert (tmp_path / name).read_text() == long


TEAM = """
provider: coderoom.teams.CodingTeam
config:
  participants:
    - provider: coderoom.agents.{kind}
      config:
        name: agent
        model_client: &model
          provider: autogen_ext.models.openai.OpenAIChatCompletionClient
          config: {{model: gpt-4o-2024-08-06, base_url: {url}, api_key: none}}
        code_executor: {{provider: coderoom.executors.SandboxCodeExecutor, config: {{work_dir: {folder}}}}}
        model_context: &context
          provider: coderoom.models.CompactingContext
          config: {{max_tokens: 2500, folder: {folder}}}
    - provider: coderoom.agents.ReviewerAgent
      config: {{name: reviewer, model_client: *model, model_context: *context}}
    - provider: autogen_agentchat.agents.AssistantAgent
      config: {{name: writer, model_client: *model, model_context: *context}}
  max_turns: 1
"""
QUESTION = "What is the magic number?"


def reply(request: Request) -> str:
    """Print long texts, the first with a number in its middle; to a question, find it in the file that is named."""
    said, last = str(request.messages), str(request.messages[-1])
    if QUESTION not in said:
        what = "f'The magic number is {7000 + 391}.'" if said.count("Print it.") == 1 else "'Nothing.'"
        return "Noted." if "yyy" in last else f"```python\nprint('x' * 2_000, {what}, 'y' * 2_000)\n```"
    if found := re.findall(r"read: (\d+)", last):
        return f"It is {found[0]}."
    assert "7391" not in said
    names = re.findall(r"\.coderoom/[\w.-]+\w", said)
    return f"```python\nnames = {names}\n{READ}\n```"


# What was left out names the files of what had been shortened before.
READ = r"""
import re
for name in names:
    text = open(name).read()
    names += re.findall(r"\.coderoom/[\w.-]+\w", text)
    if found := re.search("number is ([0-9]+)", text):
        print("read:", found[1])
        break
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CodeActAgent", "CodeExecutorAgent"])
async def test_a_model_answers_what_was_compacted_away(tmp_path: Path, kind: str) -> None:
    with OpenAIServer(respond=reply) as server:
        file = tmp_path / "team.yaml"
        file.write_text(TEAM.format(kind=kind, url=server.base_url, folder=tmp_path / "work"))
        team = load_team(file)
        assert isinstance(team, CodingTeam)
        agent: Any = team.participants[0]
        async with team:
            for _ in range(4):
                await agent.run(task="Print it.")
            result = await agent.run(task=QUESTION)
        for client in clients_of(team):
            await client.close()
    assert result.messages[-1].to_text().startswith("It is 7391.")


def test_it_is_in_files() -> None:
    made = CompactingContext(2_000, folder="work", initial_messages=[TASK])
    loaded = ChatCompletionContext.load_component(made.dump_component().model_dump())
    assert isinstance(loaded, CompactingContext)
    assert loaded.dump_component() == made.dump_component()


@pytest.mark.parametrize("given", [{"max_tokens": "many"}, {"folder": 5}])
def test_arguments_that_cannot_be_used_are_named(given: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"{next(iter(given))} must be"):
        CompactingContext(**given)

"""What people see of a turn where AutoGen Studio's page runs: a message for each event that the page drops."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, SocietyOfMindAgent
from autogen_agentchat.agents import CodeExecutorAgent as AutoGensAgent
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    BaseTextChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    MultiModalMessage,
    StopMessage,
    StructuredMessage,
    TextMessage,
    ThoughtEvent,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from coderoom.agents.studio_messages import _code
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel
from ruamel.yaml import YAML

from coderoom.agents import CodeGeneratorAgent, ReviewerAgent
from coderoom.agents import metadata as keys
from coderoom.blocks import extract_code_blocks
from coderoom.configs import ReplayModel
from coderoom.errors import AgentError
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from coderoom.teams import CodingTeam
from tests.agents.acting import MakeActor, add, execute
from tests.agents.helpers import (
    BAD,
    COBOL,
    GOOD,
    TASK,
    WORSE,
    Approver,
    Client,
    FailingClient,
    Item,
    MakeCoder,
    MakeTerminal,
    as_messages,
    decide,
    python,
    stream,
    texts,
    verdict,
)
from tests.support.commands import ROOT
from tests.support.openai_server import Failure, OpenAIServer, Raw

PICTURE = "from PIL import Image\nImage.new('RGB', (40, 20), 'red').save('red.png')\nprint('drawn')"


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Studio's pages were served by this process."""
    monkeypatch.setitem(sys.modules, "autogenstudio.web.app", ModuleType("autogenstudio.web.app"))


def shown(items: Sequence[object]) -> list[tuple[str, str]]:
    """What was shown: what it shows, and the text, pictures as `<image>`."""
    messages = [item for item in items if isinstance(item, BaseChatMessage) and keys.SHOWN in item.metadata]
    return [(message.metadata[keys.SHOWN], _text(message)) for message in messages]


def kinds(items: Sequence[object]) -> list[str]:
    return [what for what, _ in shown(items)]


def _text(message: BaseChatMessage) -> str:
    if isinstance(message, MultiModalMessage):
        return "".join(part if isinstance(part, str) else "<image>" for part in message.content)
    return message.to_text()


async def until_it_fails(stream: Any) -> tuple[list[Any], Exception]:
    """What a stream gives, and the error that ends it."""
    found: list[Any] = []
    try:
        async for item in stream:
            found.append(item)
    except Exception as error:
        return found, error
    raise AssertionError("nothing failed")


# --- When ---


async def test_elsewhere_nothing_is_shown(coder: MakeCoder) -> None:
    assert shown(await stream(coder(Client(GOOD, "It is 42.")), TASK)) == []


async def test_it_is_looked_up_when_a_turn_begins(coder: MakeCoder, request: pytest.FixtureRequest) -> None:
    agent = coder(Client(GOOD, "It is 42.", GOOD, "Again."))
    assert shown(await stream(agent, TASK)) == []
    request.getfixturevalue("watched")
    assert kinds(await stream(agent, TASK)) == ["code", "run"]


# --- What ---


@pytest.mark.usefixtures("watched")
async def test_code_run_retry_and_reason_are_shown_after_their_events(coder: MakeCoder) -> None:
    agent = coder(Client(f"I try.\n\n{BAD}", decide(True, "a typo"), GOOD, "It is 42."), max_retries_on_error=2)
    items = await stream(agent, TASK)
    assert [type(item) for item in items] == [
        *[CodeGenerationEvent, TextMessage, CodeExecutionEvent, TextMessage, CodeGenerationEvent, TextMessage],
        *[CodeGenerationEvent, TextMessage, CodeExecutionEvent, TextMessage, Response],
    ]
    found = shown(items)
    assert [what for what, _ in found] == ["code", "run", "retry_decision", "code", "run"]
    assert found[0][1] == "**Attempt 1**\n\nI try.\n\n```python no-run\nraise ValueError('first')\n```"
    assert found[1][1].startswith("**Attempt 1: error, exit code 1**\n\n```text no-run\nTraceback")
    assert found[2][1] == "**Attempt 1 failed: another one follows**\n\na typo"
    assert found[4][1] == "**Attempt 2: ok, exit code 0**\n\n```text no-run\n42\n```"


@pytest.mark.usefixtures("watched")
async def test_why_there_is_no_further_attempt(coder: MakeCoder) -> None:
    given_up = coder(Client(BAD, decide(False, "hopeless"), "Sorry."), max_retries_on_error=2)
    assert shown(await stream(given_up, TASK))[-1] == (
        "retry_decision",
        "**Attempt 1 failed: it is not tried again**\n\nhopeless",
    )
    used_up = coder(Client(BAD, decide(True), WORSE, "Sorry."), max_retries_on_error=1)
    items = await stream(used_up, TASK)
    assert shown(items)[-1] == ("stop", "**There is no further attempt:** no attempts are left.")
    # The answer comes last on the page.
    assert isinstance(items[-1], Response)
    assert kinds(items[-2:-1]) == ["stop"]


@pytest.mark.usefixtures("watched")
async def test_a_refusal_is_shown_with_its_reason(coder: MakeCoder) -> None:
    agent = coder(Client(GOOD), approval_func=Approver(False, "it deletes files"))
    what, text = shown(await stream(agent, TASK))[-1]
    assert (what, text) == ("run", "**Attempt 1 was not allowed to run**\n\n```text no-run\nit deletes files\n```")


@pytest.mark.usefixtures("watched")
async def test_why_nothing_was_run_is_shown(coder: MakeCoder) -> None:
    found = shown(await stream(coder(Client(COBOL, "Sorry.")), TASK))
    assert found[0][1] == "**Attempt 1: nothing in it can be run**\n\n```cobol no-run\nSTOP RUN.\n```"
    assert found[1][1].startswith("**Attempt 1 was not run**\n\n```text no-run\nThe block at line 1 was not run: ")


@pytest.mark.usefixtures("watched")
async def test_the_output_of_others_code_is_not_told_twice(terminal: MakeTerminal) -> None:
    items = await stream(terminal(), GOOD)
    assert shown(items) == [("run", "**Attempt 1: ok, exit code 0**")]
    # A page would run several lines together where they stand in no block.
    table = await stream(terminal(), python("print('a b')\nprint('1 2')"))
    assert shown(table) == [("run", "**Attempt 1: ok, exit code 0**\n\n```text no-run\na b\n1 2\n```")]


@pytest.mark.usefixtures("watched")
async def test_pictures_are_shown(actor: MakeActor) -> None:
    items = await stream(actor(Client(python(PICTURE), "Red.")), TASK)
    (_, text) = shown(items)[1]
    assert text == "**Attempt 1: ok, exit code 0**\n\n```text no-run\ndrawn\n```\n\nFiles: red.png<image>"
    picture = next(item for item in items if isinstance(item, MultiModalMessage)).content[1]
    assert not isinstance(picture, str)
    assert picture.image.size == (40, 20)


@pytest.mark.usefixtures("watched")
async def test_what_only_claims_to_be_a_picture_is_a_file(actor: MakeActor) -> None:
    items = await stream(actor(Client(python("open('a.png', 'w').write('no')"), "Done.")), TASK)
    assert shown(items)[1][1].endswith("\n\nFiles: a.png")


@pytest.mark.usefixtures("watched")
async def test_pictures_that_are_not_shown_are_named(actor: MakeActor) -> None:
    code = (
        "from PIL import Image\nfor i in range(12):\n    Image.new('RGB', (4, 4)).save(f'{i:02}.png')\n"
        "open('a.svg', 'w').write('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"
    )
    (_, text) = shown(await stream(actor(Client(python(code), "Drawn.")), TASK))[1]
    assert text.count("<image>") == 10
    assert text.replace("<image>", "").endswith("\n\nPictures that are not shown here: 10.png, 11.png, a.svg")


@pytest.mark.usefixtures("watched")
async def test_names_of_files_are_no_markdown(actor: MakeActor) -> None:
    names = ["__init__.py", "![a](b).txt", "`c`.txt", "d\ne.txt", "f_g-h.txt"]
    items = await stream(actor(Client(python(f"for name in {names}:\n    open(name, 'w').close()"), "Made.")), TASK)
    listed = "Files: `![a](b).txt`, `__init__.py`, `` `c`.txt ``, `d\u240ae.txt`, f_g-h.txt"
    assert shown(items)[1][1].endswith(f"\n\n{listed}")
    assert isinstance(items[-1], Response)
    assert items[-1].chat_message.to_text().endswith(f"\n\n{listed}")


@pytest.mark.usefixtures("watched")
async def test_output_is_shown_without_a_terminals_colours(coder: MakeCoder) -> None:
    code = r"print('\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b(Bend \x1b]8;;http://a/\x1b\\link\x1b]8;;\x1b\\')"
    items = await stream(coder(Client(python(code), "Done.")), TASK)
    assert shown(items)[1][1] == "**Attempt 1: ok, exit code 0**\n\n```text no-run\nred end link\n```"


@pytest.mark.usefixtures("watched")
async def test_an_output_that_markdown_would_change_is_in_a_block(terminal: MakeTerminal) -> None:
    for output in ("__init__", "1. one", "# 42", "2 * 3 * 4", "-5"):
        (_, text) = shown(await stream(terminal(), python(f"print({output!r})")))[0]
        assert text.endswith(f"\n\n```text no-run\n{output}\n```"), output
    for output in ("42", "3.14", "the end"):
        (_, text) = shown(await stream(terminal(), python(f"print({output!r})")))[0]
        assert text == "**Attempt 1: ok, exit code 0**", output


@pytest.mark.parametrize(
    ("content", "why", "words"),
    [("", "stop", "**The model's reply is empty.**"), ("I can", "content_filter", "a content filter ended it.")],
)
@pytest.mark.usefixtures("watched")
async def test_a_reply_that_is_none_is_explained(content: str, why: Any, words: str, coder: MakeCoder) -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    reply = CreateResult(finish_reason=why, content=content, usage=usage, cached=False)
    items = await stream(coder(Client(reply)), TASK)
    ((kind, text),) = shown(items)
    assert kind == "stop"
    assert words in text
    assert isinstance(items[-1], Response)
    assert items[-1].chat_message.to_text() == content
    assert items[-1].chat_message.metadata.get(keys.CUT, "stop") == why


@pytest.mark.usefixtures("watched")
async def test_calls_of_functions_are_shown(actor: MakeActor) -> None:
    items = await stream(actor(Client(python("add(40, 2)"), "It is 42."), tools=[add]), TASK)
    assert "Functions it called:\n- `add(a=40, b=2): ok`" in shown(items)[1][1]


@pytest.mark.usefixtures("watched")
async def test_thoughts_are_quoted(actor: MakeActor) -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    thinking = CreateResult(
        finish_reason="stop", content="Paris.", usage=usage, cached=False, thought="First.\n\nThen."
    )
    items = await stream(actor(Client(thinking)), TASK)
    assert [type(item) for item in items] == [ThoughtEvent, TextMessage, Response]
    assert shown(items) == [("thought", "> First.\n>\n> Then.")]


@pytest.mark.usefixtures("watched")
async def test_code_in_tags_is_shown_in_blocks(actor: MakeActor) -> None:
    client = Client(f"I add.\n\n{execute('print(42)')}", "It is 42.")
    found = shown(await stream(actor(client, code_format="execute"), TASK))
    assert found[0][1] == "**Attempt 1**\n\nI add.\n\n```python no-run\nprint(42)\n```"


@pytest.mark.usefixtures("watched")
async def test_nothing_that_is_shown_can_be_run(actor: MakeActor) -> None:
    odd = f"One:\n\n- a list\n  ~~~~py title=a.py\n  print('```')\n  ~~~~\n\n{python('print(1)')}\n\n```\nbare\n```"
    items = await stream(actor(Client(odd, "Done.")), TASK)
    blocks = [block for _, text in shown(items) for block in extract_code_blocks(text)]
    assert len(blocks) == 4
    assert all(block.no_run for block in blocks)


@pytest.mark.usefixtures("watched")
async def test_tokens_are_where_the_page_looks_for_them(coder: MakeCoder) -> None:
    items = await stream(coder(Client(GOOD, "It is 42.")), TASK)
    events = [item for item in items if isinstance(item, CodeGenerationEvent)]
    messages = [item for item in items if isinstance(item, TextMessage)]
    assert messages[0].models_usage == events[0].models_usage is not None


# --- Errors ---


@pytest.mark.usefixtures("watched")
async def test_a_refused_key_is_told_with_what_helps(coder: MakeCoder) -> None:
    with OpenAIServer([Failure(401, message="Incorrect API key provided: nope.")]) as server:
        client = OpenAIChatCompletionClient(model="gpt-4o", api_key="nope", base_url=server.base_url)
        agent = coder(client)
        found, error = await until_it_fails(agent.on_messages_stream(as_messages([TASK]), CancellationToken()))
        await client.close()
    (what, text), *more = shown(found)
    assert (what, more) == ("error", [])
    assert text.startswith("**coder could not go on: AuthenticationError**")
    assert "Incorrect API key provided: nope." in text
    assert text.endswith(
        "Check the key of your model service (OPENAI_API_KEY), or name another model (--model, or model= from Python)."
    )
    assert type(error).__name__ == "AuthenticationError"


@pytest.mark.usefixtures("watched")
async def test_a_place_that_is_not_there_is_told(coder: MakeCoder) -> None:
    executor = SandboxCodeExecutor(python="/no/such/python")
    found, error = await until_it_fails(
        coder(Client(GOOD), code_executor=executor).on_messages_stream(as_messages([TASK]), CancellationToken())
    )
    assert kinds(found) == ["code", "error"]
    assert str(error) in shown(found)[1][1]


@pytest.mark.usefixtures("watched")
async def test_a_cancel_is_no_error(coder: MakeCoder) -> None:
    token = CancellationToken()
    found: list[Item] = []
    try:
        async for item in coder(Client(python("while True: pass"))).on_messages_stream(as_messages([TASK]), token):
            found.append(item)
            if "code" in kinds(found):
                token.cancel()
    except asyncio.CancelledError:
        found.append(Response(chat_message=TextMessage(content="cancelled", source="test")))
    assert kinds(found) == ["code"]
    assert isinstance(found[-1], Response)


# --- In teams ---


def team_of(kind: type[RoundRobinGroupChat], *participants: Any, **arguments: Any) -> RoundRobinGroupChat:
    return kind(list(participants), max_turns=len(participants), **arguments)


async def run(team: RoundRobinGroupChat) -> tuple[list[BaseAgentEvent | BaseChatMessage], TaskResult]:
    items = [item async for item in team.run_stream(task=TASK)]
    assert isinstance(items[-1], TaskResult)
    return [item for item in items if not isinstance(item, TaskResult)], items[-1]


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", [CodingTeam, RoundRobinGroupChat])
async def test_no_agent_gets_it_and_no_condition_counts_it(kind: type[RoundRobinGroupChat], coder: MakeCoder) -> None:
    reviewing = Client(verdict(True))
    agents = [coder(Client(GOOD, "It is 42.")), ReviewerAgent("reviewer", reviewing)]
    # The task, two events, the coder's report, the verdict: a sixth message would end it as well.
    condition = MaxMessageTermination(6, include_agent_event=True)
    messages, result = await run(team_of(kind, *agents, termination_condition=condition))
    assert kinds(messages) == ["code", "run"]
    assert result.stop_reason == "Maximum number of turns 2 reached."
    read = texts(reviewing.calls[0].messages)
    assert sum("It is 42." in text for text in read) == 1
    assert not any("**Attempt" in text for text in read)


@pytest.mark.usefixtures("watched")
async def test_a_result_is_what_it_is_elsewhere(coder: MakeCoder) -> None:
    _, result = await run(team_of(CodingTeam, coder(Client(GOOD, "It is 42."))))
    kept = [type(message) for message in result.messages]
    assert kept == [TextMessage, CodeGenerationEvent, CodeExecutionEvent, TextMessage]
    assert shown(result.messages) == []


@pytest.mark.usefixtures("watched")
async def test_an_agent_as_a_tool_answers_as_elsewhere(coder: MakeCoder) -> None:
    tool = AgentTool(coder(Client(GOOD, "It is 42.")))
    items = [item async for item in tool.run_json_stream({"task": TASK}, CancellationToken())]
    assert kinds(items) == ["code", "run"]
    assert isinstance(items[-1], TaskResult)
    assert shown(items[-1].messages) == []
    assert "**Attempt" not in tool.return_value_as_string(items[-1])


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("inner", [CodingTeam, RoundRobinGroupChat])
@pytest.mark.parametrize("outer", [CodingTeam, RoundRobinGroupChat])
async def test_nested_teams_show_and_pass_nothing_on(
    outer: type[RoundRobinGroupChat], inner: type[RoundRobinGroupChat], coder: MakeCoder
) -> None:
    reviewing = Client(verdict(True))
    nested = team_of(inner, coder(Client(GOOD, "It is 42.")), name="inner")
    messages, _ = await run(team_of(outer, nested, ReviewerAgent("reviewer", reviewing)))
    assert kinds(messages) == ["code", "run"]
    assert not any("**Attempt" in text for text in texts(reviewing.calls[0].messages))


class Counts(MaxMessageTermination):
    """Notes what it is given."""

    def __init__(self) -> None:
        super().__init__(50, include_agent_event=True)
        self.given: list[object] = []

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        self.given += messages
        return await super().__call__(messages)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("inner", [CodingTeam, RoundRobinGroupChat])
@pytest.mark.parametrize("outer", [CodingTeam, RoundRobinGroupChat])
async def test_nobody_below_our_team_gets_it(
    outer: type[RoundRobinGroupChat], inner: type[RoundRobinGroupChat], coder: MakeCoder
) -> None:
    """Neither AutoGen's agents, nor their teams' conditions, however deep."""
    beside, society = Client("read"), Client("told")
    counts = Counts()
    nested = team_of(inner, coder(Client(GOOD, "It is 42.")), name="inner")
    among = team_of(outer, nested, AssistantAgent("beside", beside), name="among", termination_condition=counts)
    messages, result = await run(team_of(CodingTeam, SocietyOfMindAgent("society", among, society)))
    assert kinds(messages) == ["code", "run"]
    assert shown([*counts.given, *result.messages]) == []
    for client in (beside, society):
        read = texts(client.calls[0].messages)
        assert any("It is 42." in text for text in read)
        assert not any("**Attempt" in text for text in read)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("wrap", [None, RoundRobinGroupChat, CodingTeam, SocietyOfMindAgent])
async def test_what_is_below_is_shown_as_what_is_not(wrap: Any, coder: MakeCoder) -> None:
    agent: Any = coder(Client(BAD, decide(True, "a typo"), BAD, "It failed."), max_retries_on_error=1)
    if wrap is SocietyOfMindAgent:
        agent = SocietyOfMindAgent("society", team_of(RoundRobinGroupChat, agent, name="inner"), Client("told"))
    elif wrap is not None:
        agent = team_of(wrap, agent, name="inner")
    messages, _ = await run(team_of(CodingTeam, agent))
    assert kinds(messages) == ["code", "run", "retry_decision", "code", "run", "stop"]
    assert {message.source for message in messages if keys.SHOWN in message.metadata} == {"coder"}


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("inner", [CodingTeam, RoundRobinGroupChat])
async def test_an_error_below_is_told_once(inner: type[RoundRobinGroupChat], coder: MakeCoder) -> None:
    nested = team_of(inner, coder(FailingClient([0])), name="inner")
    found, _ = await until_it_fails(team_of(CodingTeam, nested).run_stream(task=TASK))
    assert kinds(found) == ["error"]
    assert shown(found)[0][1].startswith("**coder could not go on: ConnectionError**")


@pytest.mark.usefixtures("watched")
@pytest.mark.filterwarnings("ignore:No approval function:UserWarning")
async def test_autogens_own_agents_are_shown_in_our_team(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(tmp_path)
    agent = AutoGensAgent("coder", executor, model_client=Client(GOOD, "It is 42."))
    messages, _ = await run(team_of(CodingTeam, agent))
    assert shown(messages)[1] == ("run", "**Attempt 1: ok, exit code 0**\n\n```text no-run\n42\n```")


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", [CodingTeam, RoundRobinGroupChat])
async def test_an_error_is_told_once(kind: type[RoundRobinGroupChat], coder: MakeCoder) -> None:
    found, error = await until_it_fails(team_of(kind, coder(FailingClient([0]))).run_stream(task=TASK))
    assert [what for what, _ in shown(found)] == ["error"]
    assert "ConnectionError" in shown(found)[0][1]
    assert "the line is dead" in shown(found)[0][1]
    assert isinstance(error, AgentError if kind is CodingTeam else RuntimeError)


@pytest.mark.usefixtures("watched")
async def test_errors_of_others_agents_are_told_in_our_team() -> None:
    assistant = AssistantAgent("assistant", FailingClient([0]))
    nested = team_of(RoundRobinGroupChat, AssistantAgent("inner", FailingClient([0])), name="nested")
    for failing, who in ((assistant, "assistant"), (nested, "nested")):
        found, _ = await until_it_fails(team_of(CodingTeam, failing).run_stream(task=TASK))
        assert kinds(found) == ["error"]
        assert shown(found)[0][1].startswith(f"**{who} could not go on: ")
        assert "the line is dead" in shown(found)[0][1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Raw(b"<html>Sign in</html>", content_type="text/html"), "What answers there is no model service"),
        (Failure(400, code="content_filter", message="It was filtered."), "content filter refuses this"),
    ],
)
@pytest.mark.usefixtures("watched")
async def test_other_failures_of_a_service_come_with_what_helps(answer: Any, words: str, coder: MakeCoder) -> None:
    with OpenAIServer([answer]) as server:
        client = OpenAIChatCompletionClient(model="gpt-4o", api_key="none", base_url=server.base_url, max_retries=0)
        found, _ = await until_it_fails(coder(client).run_stream(task=TASK))
        await client.close()
    assert words in shown(found)[0][1]


@pytest.mark.usefixtures("watched")
async def test_a_model_that_calls_tools_is_told_of_in_words(coder: MakeCoder) -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    call = FunctionCall(id="1", name="no_such_tool", arguments="{")
    reply = CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)
    found, error = await until_it_fails(coder(Client(reply)).run_stream(task=TASK))
    assert isinstance(error, TypeError)
    assert "The model called 'no_such_tool' as a tool. It is offered none" in shown(found)[0][1]


class Announcement(BaseTextChatMessage):
    """A type of somebody else's."""


class Announcer(BaseChatAgent):
    """Says things that the page drops."""

    produced_message_types = (Announcement,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return Response(chat_message=Announcement(content="Hear **this**.", source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


class Fact(BaseModel):
    number: int


@pytest.mark.usefixtures("watched")
async def test_answers_of_types_that_the_page_drops_are_shown() -> None:
    model = Client('{"number": 42}', structured_output=True, json_output=True)
    knows = AssistantAgent("knows", model, output_content_type=Fact)
    types: list[Any] = [Announcement, StructuredMessage[Fact]]
    team = CodingTeam([Announcer("crier", "It cries."), knows], max_turns=2, custom_message_types=types)
    items, result = await run(team)
    assert shown(items) == [
        ("answer", "Hear **this**."),
        ("answer", '```json no-run\n{\n  "number": 42\n}\n```'),
    ]
    assert [type(message) for message in result.messages] == [TextMessage, Announcement, StructuredMessage[Fact]]


@pytest.mark.usefixtures("watched")
async def test_the_generator_shows_its_steps() -> None:
    recorded = YAML(typ="safe").load(ROOT / "examples" / "solve.replay.yaml")["replies"]
    agent = CodeGeneratorAgent("generator", ReplayModel(recorded))
    try:
        items = await stream(agent, "Write numbers as Roman numerals, and read them.")
    finally:
        await agent.close()
    found = kinds(items)
    assert len(found) == len([item for item in items if isinstance(item, BaseAgentEvent)])
    # Specs, two lists of tests, what is frozen; then code and tests of it, and once a remedy.
    assert found == ["thought"] * 4 + ["code", "run"] * 3


ODD_LINES = st.sampled_from(
    [
        *[
            "```python",
            "```",
            "~~~",
            "~~~py",
            "- ```python",
            "  ```",
            "> ```py",
            "````",
            "```py print(1)```",
            "```json",
        ],
        *["<execute>", "</execute>", "say <execute>x", "<!--", "-->", "1. a", "    x", "print('```')", "print(1)", ""],
    ]
)


@example("- ```python\n~~~\n```\n~~~\n```")
@given(st.lists(ODD_LINES, max_size=12).map("\n".join) | st.text())
def test_no_reply_is_an_error_or_can_be_run(reply: str) -> None:
    event = CodeGenerationEvent(source="coder", retry_attempt=0, content=reply, code_blocks=[])
    text = _code(event).content
    assert all(block.no_run for block in extract_code_blocks(text))

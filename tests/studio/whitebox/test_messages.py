"""What AutoGen Studio's page shows of a turn: a message for each event that it drops; and how a run ends there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, SocietyOfMindAgent
from autogen_agentchat.agents import CodeExecutorAgent as AutoGensAgent
from autogen_agentchat.base import Response, TaskResult, Team
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    BaseTextChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    MultiModalMessage,
    StructuredMessage,
    TextMessage,
    ThoughtEvent,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.models import CreateResult, RequestUsage
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel
from ruamel.yaml import YAML

from coderoom.agents import CodeGeneratorAgent
from coderoom.agents import metadata as keys
from coderoom.blocks import extract_code_blocks
from coderoom.configs import ReplayModel
from coderoom.errors import AgentError
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from coderoom.studio.messages import StudioMessages
from coderoom.studio.serve import with_messages
from coderoom.teams import CodingTeam, TeamAgent
from tests.agents.acting import MakeActor, add, execute
from tests.agents.helpers import (
    BAD,
    COBOL,
    GOOD,
    TASK,
    WORSE,
    Approver,
    Client,
    MakeCoder,
    MakeTerminal,
    decide,
    python,
)
from tests.agents.helpers import stream as take_turn
from tests.studio.teams import CODING, EXECUTOR, ROUND, agent, openai, part, replay, team_agent
from tests.studio.teams import team as team_config
from tests.support.commands import ROOT
from tests.support.openai_server import Failure, OpenAIServer

LOCAL = "coderoom.executors.LocalCodeExecutor"
PICTURE = "from PIL import Image\nImage.new('RGB', (40, 20), 'red').save('red.png')\nprint('drawn')"


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


def on_page(items: Iterable[Any], asking: Collection[str] = ()) -> list[Any]:
    """The items of a turn or a run, and the messages that explain them."""
    messages = StudioMessages(asking)
    found: list[Any] = []
    for item in items:
        if isinstance(item, Response):
            found += [*messages.show(item.chat_message)[:-1], item]
        else:
            found += messages.show(item)
    return found


async def stream(agent: BaseChatAgent, *said: str) -> list[Any]:
    return on_page(await take_turn(agent, *said))


# --- Steps of a turn ---


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


async def test_why_there_is_no_further_attempt(coder: MakeCoder) -> None:
    given_up = coder(Client(BAD, decide(False, "hopeless"), "Sorry."), max_retries_on_error=2)
    assert shown(await stream(given_up, TASK))[-1] == (
        "retry_decision",
        "**Attempt 1 failed: there is no further attempt**\n\nhopeless",
    )
    used_up = coder(Client(BAD, decide(True), WORSE, "Sorry."), max_retries_on_error=1)
    items = await stream(used_up, TASK)
    assert shown(items)[-1] == ("stop", "**There is no further attempt:** no attempts are left.")
    # The answer comes last on the page.
    assert isinstance(items[-1], Response)
    assert kinds(items[-2:-1]) == ["stop"]


async def test_branches_are_shown_with_their_names_and_the_one_that_goes_on(coder: MakeCoder, tmp_path: Path) -> None:
    client, executor = Client(BAD, WORSE, GOOD, "It is 42."), SandboxCodeExecutor(tmp_path)
    found = shown(await stream(coder(client, code_executor=executor, max_retries_on_error=1, branches=2), TASK))
    assert [what for what, _ in found] == ["code", "run", "code", "run", "code", "run", "branches"]
    titles = [text.partition("\n")[0] for _, text in found]
    assert titles[2:] == [
        "**Attempt 2 in branch 1.1**",
        "**Attempt 2 in branch 1.1: error, exit code 1**",
        "**Attempt 2 in branch 1.2**",
        "**Attempt 2 in branch 1.2: ok, exit code 0**",
        "**Branching 1**",
    ]
    assert found[-1][1].splitlines()[2].startswith("- 1.1, error, `ended with error`, ")
    assert found[-1][1].splitlines()[3].startswith("- **goes on**: 1.2, ok, `ran to its end`, ")


async def test_a_refusal_is_shown_with_its_reason(coder: MakeCoder) -> None:
    agent = coder(Client(GOOD), approval_func=Approver(False, "it deletes files"))
    what, text = shown(await stream(agent, TASK))[-1]
    assert (what, text) == ("run", "**Attempt 1 was not allowed to run**\n\n```text no-run\nit deletes files\n```")


async def test_why_nothing_was_run_is_shown(coder: MakeCoder) -> None:
    found = shown(await stream(coder(Client(COBOL, "Sorry.")), TASK))
    assert found[0][1] == "**Attempt 1: no code to run**\n\n```cobol no-run\nSTOP RUN.\n```"
    assert found[1][1].startswith("**Attempt 1 was not run**\n\n```text no-run\nThe block at line 1 was not run: ")


async def test_the_output_of_others_code_is_not_told_twice(terminal: MakeTerminal) -> None:
    items = await stream(terminal(), GOOD)
    assert shown(items) == [("run", "**Attempt 1: ok, exit code 0**")]
    # A page would run several lines together where they stand in no block.
    table = await stream(terminal(), python("print('a b')\nprint('1 2')"))
    assert shown(table) == [("run", "**Attempt 1: ok, exit code 0**\n\n```text no-run\na b\n1 2\n```")]


async def test_pictures_are_shown(actor: MakeActor) -> None:
    items = await stream(actor(Client(python(PICTURE), "Red.")), TASK)
    (_, text) = shown(items)[1]
    assert text == "**Attempt 1: ok, exit code 0**\n\n```text no-run\ndrawn\n```\n\nFiles: red.png<image>"
    picture = next(item for item in items if isinstance(item, MultiModalMessage)).content[1]
    assert not isinstance(picture, str)
    assert picture.image.size == (40, 20)


async def test_a_value_that_is_html_is_shown_as_its_text(actor: MakeActor) -> None:
    """Studio's messages are Markdown, in which HTML is text."""
    code = "class A:\n    __repr__ = lambda self: 'x  1'\n    _repr_html_ = lambda self: '<b>x</b>'\nA()"
    items = await stream(actor(Client(python(code), "Made.")), TASK)
    end = "\n\n```text no-run\nx  1\n```\n\nFiles: value-1.html"
    assert shown(items)[1][1].endswith(end)


async def test_what_only_claims_to_be_a_picture_is_a_file(actor: MakeActor) -> None:
    items = await stream(actor(Client(python("open('a.png', 'w').write('no')"), "Done.")), TASK)
    assert shown(items)[1][1].endswith("\n\nFiles: a.png")


async def test_pictures_that_are_not_shown_are_named(actor: MakeActor) -> None:
    code = (
        "from PIL import Image\nfor i in range(12):\n    Image.new('RGB', (4, 4)).save(f'{i:02}.png')\n"
        "open('a.svg', 'w').write('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"
    )
    (_, text) = shown(await stream(actor(Client(python(code), "Drawn.")), TASK))[1]
    assert text.count("<image>") == 10
    assert text.replace("<image>", "").endswith("\n\nPictures that are not shown here: 10.png, 11.png, a.svg")


async def test_names_of_files_are_no_markdown(actor: MakeActor) -> None:
    names = ["__init__.py", "![a](b).txt", "`c`.txt", "d\ne.txt", "f_g-h.txt"]
    items = await stream(actor(Client(python(f"for name in {names}:\n    open(name, 'w').close()"), "Made.")), TASK)
    listed = "Files: `![a](b).txt`, `__init__.py`, `` `c`.txt ``, `d\u240ae.txt`, f_g-h.txt"
    assert shown(items)[1][1].endswith(f"\n\n{listed}")
    assert isinstance(items[-1], Response)
    assert items[-1].chat_message.to_text().endswith(f"\n\n{listed}")


async def test_output_is_shown_without_a_terminals_colours(coder: MakeCoder) -> None:
    code = r"print('\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b(Bend \x1b]8;;http://a/\x1b\\link\x1b]8;;\x1b\\')"
    items = await stream(coder(Client(python(code), "Done.")), TASK)
    assert shown(items)[1][1] == "**Attempt 1: ok, exit code 0**\n\n```text no-run\nred end link\n```"


@pytest.mark.slow
async def test_an_output_that_markdown_would_change_is_in_a_block(terminal: MakeTerminal) -> None:
    for output in ("__init__", "1. one", "# 42", "2 * 3 * 4", "-5"):
        (_, text) = shown(await stream(terminal(), python(f"print({output!r})")))[0]
        assert text.endswith(f"\n\n```text no-run\n{output}\n```"), output
    for output in ("42", "3.14", "the end"):
        (_, text) = shown(await stream(terminal(), python(f"print({output!r})")))[0]
        assert text == "**Attempt 1: ok, exit code 0**", output


async def test_an_empty_reply_is_explained(coder: MakeCoder) -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    reply = CreateResult(finish_reason="stop", content="", usage=usage, cached=False)
    items = await stream(coder(Client(reply)), TASK)
    ((kind, text),) = shown(items)
    assert kind == "stop"
    assert "**The model's reply is empty.**" in text
    assert isinstance(items[-1], Response)
    assert items[-1].chat_message.to_text() == keys.EMPTY_REPLY


async def test_calls_of_functions_are_shown(actor: MakeActor) -> None:
    items = await stream(actor(Client(python("add(40, 2)"), "It is 42."), tools=[add]), TASK)
    assert "Functions it called:\n- `add(a=40, b=2): ok`" in shown(items)[1][1]


async def test_thoughts_are_quoted(actor: MakeActor) -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    thinking = CreateResult(
        finish_reason="stop", content="Paris.", usage=usage, cached=False, thought="First.\n\nThen."
    )
    items = await stream(actor(Client(thinking)), TASK)
    assert [type(item) for item in items] == [ThoughtEvent, TextMessage, Response]
    assert shown(items) == [("thought", "> First.\n>\n> Then.")]


async def test_code_in_tags_is_shown_in_blocks(actor: MakeActor) -> None:
    client = Client(f"I add.\n\n{execute('print(42)')}", "It is 42.")
    found = shown(await stream(actor(client, code_format="execute"), TASK))
    assert found[0][1] == "**Attempt 1**\n\nI add.\n\n```python no-run\nprint(42)\n```"


async def test_nothing_that_is_shown_can_be_run(actor: MakeActor) -> None:
    odd = f"One:\n\n- a list\n  ~~~~py title=a.py\n  print('```')\n  ~~~~\n\n{python('print(1)')}\n\n```\nbare\n```"
    items = await stream(actor(Client(odd, "Done.")), TASK)
    blocks = [block for _, text in shown(items) for block in extract_code_blocks(text)]
    assert len(blocks) == 4
    assert all(block.no_run for block in blocks)


async def test_tokens_are_where_the_page_looks_for_them(coder: MakeCoder) -> None:
    items = await stream(coder(Client(GOOD, "It is 42.")), TASK)
    events = [item for item in items if isinstance(item, CodeGenerationEvent)]
    messages = [item for item in items if isinstance(item, TextMessage)]
    assert messages[0].models_usage == events[0].models_usage is not None


async def test_code_is_shown_once_where_a_question_shows_it() -> None:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    block = CodeBlock(code="print(42)", language="python")
    code = CodeGenerationEvent(source="coder", content=GOOD, code_blocks=[block], retry_attempt=0, models_usage=usage)
    question = TextMessage(source="coder", content="Run this code?", metadata={keys.SHOWN: "question"})
    items = on_page([code, question], asking=["coder"])
    assert kinds(items) == ["question"]
    assert items[-1].models_usage == usage
    assert kinds(on_page([code, question])) == ["code", "question"]


# --- In teams ---


async def run(team: RoundRobinGroupChat) -> tuple[list[BaseAgentEvent | BaseChatMessage], TaskResult]:
    items = [item async for item in team.run_stream(task=TASK)]
    assert isinstance(items[-1], TaskResult)
    return on_page(items[:-1]), items[-1]


@pytest.mark.parametrize("kind", [CodingTeam, pytest.param(RoundRobinGroupChat, marks=pytest.mark.slow)])
@pytest.mark.parametrize("wrap", [None, RoundRobinGroupChat, CodingTeam, SocietyOfMindAgent, TeamAgent])
async def test_each_step_is_shown_once_however_deep(
    wrap: Any, kind: type[RoundRobinGroupChat], coder: MakeCoder
) -> None:
    agent: Any = coder(Client(BAD, decide(True, "a typo"), BAD, "It failed."), max_retries_on_error=1)
    if wrap is SocietyOfMindAgent:
        agent = SocietyOfMindAgent("society", CodingTeam([agent], name="inner", max_turns=1), Client("told"))
    elif wrap is TeamAgent:
        agent = TeamAgent(CodingTeam([agent], name="inner", max_turns=1))
    elif wrap is not None:
        agent = wrap([agent], name="inner", max_turns=1)
    messages, _ = await run(kind([agent], max_turns=1))
    assert kinds(messages) == ["code", "run", "retry_decision", "code", "run", "stop"]


@pytest.mark.filterwarnings("ignore:No approval function:UserWarning")
async def test_autogens_own_agents_are_shown(tmp_path: Path) -> None:
    agent = AutoGensAgent("coder", LocalCodeExecutor(tmp_path), model_client=Client(GOOD, "It is 42."))
    messages, _ = await run(RoundRobinGroupChat([agent], max_turns=1))
    assert shown(messages)[1] == ("run", "**Attempt 1: ok, exit code 0**\n\n```text no-run\n42\n```")


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


# --- Runs ---


class TeamManager:
    """Makes and runs a team in the way of Studio's class of this name, which is in Studio's environment."""

    async def _create_team(self, team_config: Any) -> Any:
        return Team.load_component(team_config)

    async def run_stream(self, task: str, team_config: Any) -> AsyncGenerator[Any, None]:
        team = await self._create_team(team_config)
        async for item in team.run_stream(task=task):
            yield item


def config(kind: str, *models: dict[str, Any]) -> dict[str, Any]:
    coders = [
        agent(EXECUTOR, f"coder{number}", model_client=model, code_executor=part("code_executor", LOCAL))
        for number, model in enumerate(models)
    ]
    return team_config(kind, *coders)


async def until_it_fails(component: dict[str, Any]) -> tuple[list[Any], Exception]:
    found: list[Any] = []
    try:
        async for item in with_messages(TeamManager)().run_stream(TASK, component):
            found.append(item)
    except Exception as error:
        return found, error
    raise AssertionError("nothing failed")


@pytest.mark.parametrize("kind", [CODING, ROUND])
@pytest.mark.parametrize("nested", [None, CODING, ROUND])
async def test_an_error_is_told_once_with_the_agents_name(nested: str | None, kind: str) -> None:
    component = config(nested or kind, replay("Done."), replay())
    found, error = await until_it_fails(team_config(kind, component) if nested else component)
    assert kinds(found) == ["error"]
    assert shown(found)[0][1].startswith("**coder1 could not go on: RequestError**")
    assert isinstance(error, AgentError if kind == CODING else RuntimeError)


async def test_an_error_comes_with_what_helps() -> None:
    refused = Failure(401, message="Incorrect API key provided: nope.")
    with OpenAIServer([refused]) as server:
        found, _ = await until_it_fails(config(CODING, openai(server.base_url)))
    ((_, text),) = shown(found)
    assert text.startswith("**coder0 could not go on: AuthenticationError**")
    assert "Incorrect API key provided: nope." in text
    assert "Check the key of your model service (OPENAI_API_KEY for" in text


async def test_a_run_closes_what_studio_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    async def close(self: Any) -> None:
        closed.append(type(self).__name__)

    monkeypatch.setattr(ReplayModel, "close", close)
    component = team_config(ROUND, team_agent(config(ROUND, replay("Done.", "Done."))))
    async for _ in with_messages(TeamManager)().run_stream(TASK, component):
        assert closed == []
    assert closed == ["ReplayModel"]
    run = with_messages(TeamManager)().run_stream(TASK, component)
    await anext(run)
    await run.aclose()
    assert closed == ["ReplayModel"] * 2


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
    text = StudioMessages().show(event)[1].content
    assert all(block.no_run for block in extract_code_blocks(text))

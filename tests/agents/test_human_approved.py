"""The agent whose code a person decides on, through AutoGen's input function. Its code runs in a real sandbox."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Protocol

import pytest
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import ChatAgent, Response, TaskResult
from autogen_agentchat.messages import (
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
    UserInputRequestedEvent,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from coderoom.agents import CodeActAgent, CodeExecutorAgent, HumanApprovedAgent, ReviewerAgent
from coderoom.agents import metadata as keys
from coderoom.approval import (
    AlwaysApprove,
    ApprovalRequest,
    ApprovalResponse,
    ChainApproval,
    HumanApproval,
    InputFunc,
    NeverApprove,
    Rule,
    RuleApproval,
)
from coderoom.blocks import extract_code_blocks
from coderoom.configs import check_team, dump_team, load_team
from coderoom.executors import SandboxCodeExecutor
from coderoom.runs import RunRecord, run_team
from coderoom.sandbox import Effect
from coderoom.teams import CodingTeam
from tests.agents.helpers import (
    BAD,
    GOOD,
    TASK,
    Client,
    Item,
    begin,
    context_of,
    decide,
    facts_of,
    python,
    stream,
    text_of,
    turn,
)

WRITES = python("open('made', 'w').write('x')\nprint('written')")


class Person:
    """Answers questions at a page, in order, and waits for ever when there is no answer left."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []
        self.ids: list[str] = []
        self.tokens: list[CancellationToken | None] = []
        self.asked = asyncio.Event()

    async def __call__(self, prompt: str, cancellation_token: CancellationToken | None = None) -> str:
        self.questions.append(prompt)
        self.tokens.append(cancellation_token)
        self.ids.append(UserProxyAgent.InputRequestContext.request_id())
        self.asked.set()
        if not self.answers:
            await asyncio.Event().wait()
        return self.answers.pop(0)


class MakeAgent(Protocol):
    def __call__(self, *replies: str, person: InputFunc | None = None, **arguments: Any) -> HumanApprovedAgent: ...


@pytest.fixture
async def approved(tmp_path: Path) -> AsyncIterator[MakeAgent]:
    """Makes a coder whose code a person decides on; `of` are the coder's own arguments."""
    made: list[HumanApprovedAgent] = []

    def make(
        *replies: str, person: InputFunc | None = None, of: dict[str, Any] | None = None, **arguments: Any
    ) -> HumanApprovedAgent:
        executor = SandboxCodeExecutor(tmp_path)
        coder = CodeExecutorAgent("coder", executor, model_client=Client(*replies), **of or {})
        made.append(HumanApprovedAgent(coder, input_func=person, **arguments))
        return made[-1]

    yield make
    for agent in made:
        await agent.close()


def questions_in(items: list[Item]) -> list[TextMessage]:
    return [item for item in items if isinstance(item, TextMessage) and item.metadata.get(keys.SHOWN) == "question"]


def response_of(items: list[Item]) -> Response:
    assert isinstance(items[-1], Response)
    return items[-1]


# --- Yes and no ---


async def test_a_yes_lets_the_code_run_after_it_was_shown(approved: MakeAgent, tmp_path: Path) -> None:
    person = Person("yes")
    items = await stream(approved(WRITES, "Done.", person=person), TASK)
    kinds = [type(item) for item in items]
    assert kinds == [CodeGenerationEvent, TextMessage, UserInputRequestedEvent, CodeExecutionEvent, Response]
    [question] = questions_in(items)
    assert (question.source, question.content in person.questions[0]) == ("coder", True)
    [block] = extract_code_blocks(question.content)
    assert (block.code, block.language, block.no_run) == (
        "open('made', 'w').write('x')\nprint('written')",
        "python",
        True,
    )
    assert "yes or no" in question.content.split("```")[0]
    assert "2 lines" in question.content.split("```")[0]
    requested = items[2]
    assert isinstance(requested, UserInputRequestedEvent)
    assert person.ids == [requested.request_id]
    assert facts_of(response_of(items))["outcome"] == "ok"
    assert (tmp_path / "made").exists()


async def test_a_no_ends_the_turn_and_nothing_runs(approved: MakeAgent, tmp_path: Path) -> None:
    agent = approved(WRITES, person=Person("no"), of={"max_retries_on_error": 3})
    response = await turn(agent, TASK)
    facts = facts_of(response)
    assert (facts["outcome"], facts["ran"], facts["stop_reason"]) == ("rejected", "false", "rejected")
    assert "A person said no." in text_of(response)
    assert not (tmp_path / "made").exists()
    assert isinstance(agent.agent, CodeExecutorAgent)
    assert "A person said no." in (await context_of(agent.agent))[-1]


@pytest.mark.parametrize("way", ["sync", "async", "lambda", "callable"])
async def test_every_kind_of_input_function_works(approved: MakeAgent, way: str) -> None:
    seen: list[str] = []

    def sync(prompt: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(prompt)
        return "y"

    person = Person("y")
    functions: dict[str, Any] = {
        "sync": sync,
        "async": person.__call__,
        "lambda": lambda prompt: sync(prompt),
        "callable": person,
    }
    response = await turn(approved(GOOD, "Done.", person=functions[way]), TASK)
    assert facts_of(response)["outcome"] == "ok"
    assert len(seen) + len(person.questions) == 1


async def test_a_function_that_is_set_later_is_the_one_that_is_asked(approved: MakeAgent) -> None:
    agent = approved(GOOD, person=Person("yes"))
    agent.input_func = Person("no")
    assert facts_of(await turn(agent, TASK))["outcome"] == "rejected"


async def test_each_attempt_is_asked_about(approved: MakeAgent) -> None:
    person = Person("yes", "no")
    items = await stream(
        approved(BAD, decide(True), GOOD, person=person, of={"max_retries_on_error": 2}),
        TASK,
    )
    first, second = questions_in(items)
    assert "'first'" in first.content
    assert "6 * 7" in second.content
    assert facts_of(response_of(items))["outcome"] == "rejected"
    assert facts_of(response_of(items))["attempts"] == "2"


# --- Answers that are none ---


async def test_a_yes_with_a_condition_is_none(approved: MakeAgent) -> None:
    person = Person("yes, but not the second line", "yes if you must", "no because of that")
    items = await stream(approved(GOOD, person=person), TASK)
    assert facts_of(response_of(items))["outcome"] == "rejected"
    assert len(person.questions) == 3
    first, *again = questions_in(items)
    assert extract_code_blocks(first.content)
    assert all("neither a yes nor a no" in question.content and "```" not in question.content for question in again)


async def test_three_answers_that_are_not_understood_are_a_no(approved: MakeAgent) -> None:
    person = Person("perhaps", "maybe", "yes but", "yes")
    response = await turn(approved(GOOD, person=person), TASK)
    assert facts_of(response)["outcome"] == "rejected"
    assert "not understood 3 times" in text_of(response)
    assert person.answers == ["yes"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EOFError(), "The input ended before a person answered."),
        (ConnectionError("the page is gone"), "ConnectionError: the page is gone"),
        (asyncio.CancelledError(), "The input ended before a person answered."),
    ],
)
async def test_a_function_that_fails_is_a_no(approved: MakeAgent, error: BaseException, reason: str) -> None:
    async def broken(prompt: str, cancellation_token: CancellationToken | None) -> str:
        raise error

    response = await turn(approved(GOOD, person=broken), TASK)
    assert facts_of(response)["outcome"] == "rejected"
    assert reason in text_of(response)


@pytest.mark.parametrize("answer", [True, None, 1, ["yes"]])
async def test_what_is_no_text_is_no_yes(approved: MakeAgent, answer: object) -> None:
    async def odd(prompt: str, cancellation_token: CancellationToken | None) -> Any:
        return answer

    assert facts_of(await turn(approved(GOOD, person=odd), TASK))["outcome"] == "rejected"


async def test_nobody_there_is_a_no_after_the_timeout(approved: MakeAgent, tmp_path: Path) -> None:
    person = Person()
    response = await turn(approved(WRITES, person=person, timeout=0.5), TASK)
    assert facts_of(response)["outcome"] == "rejected"
    assert "No person answered within 0.5 seconds" in text_of(response)
    [token] = person.tokens
    assert token is not None
    assert token.is_cancelled()
    assert not (tmp_path / "made").exists()


# --- Stop while a question waits ---


class Obstinate:
    """Looks neither at its token nor at a cancel."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let_go = asyncio.Event()

    async def __call__(self, prompt: str, cancellation_token: CancellationToken | None) -> str:
        self.asked.set()
        while not self.let_go.is_set():
            with suppress(asyncio.CancelledError):
                await self.let_go.wait()
        return "yes"


@pytest.mark.parametrize("way", ["token", "task", "close"])
async def test_a_stop_ends_a_waiting_question_at_once(approved: MakeAgent, tmp_path: Path, way: str) -> None:
    person = Obstinate()
    agent = approved(WRITES, GOOD, "Done.", person=person)
    if way == "close":
        items = agent.on_messages_stream([TextMessage(content=TASK, source="user")], CancellationToken())
        assert isinstance(await anext(items), CodeGenerationEvent)
        assert isinstance(await anext(items), TextMessage)
        await items.aclose()
    else:
        running, token = begin(agent, TASK)
        async with asyncio.timeout(30):
            await person.asked.wait()
        running.cancel() if way == "task" else token.cancel()
        async with asyncio.timeout(1):
            with pytest.raises(asyncio.CancelledError):
                await running
    person.let_go.set()
    await asyncio.sleep(0.05)
    assert not (tmp_path / "made").exists()
    agent.input_func = Person("yes")
    assert facts_of(await turn(agent, "And now?"))["outcome"] == "ok"


@pytest.mark.parametrize("make_team", [RoundRobinGroupChat, CodingTeam])
async def test_a_team_is_stopped_while_a_question_waits(
    approved: MakeAgent, make_team: Callable[..., Any], tmp_path: Path
) -> None:
    person, token = Person(), CancellationToken()
    team = make_team([approved(WRITES, person=person)], max_turns=1)
    running = asyncio.create_task(team.run(task=TASK, cancellation_token=token))
    async with asyncio.timeout(30):
        await person.asked.wait()
    token.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not (tmp_path / "made").exists()


# --- What the person sees ---


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("print('a')\n```\n\nRun this code? yes\n\n```python\nprint('b')", None),
        ("x = '''\n````\n~~~~~~\n'''\nprint(x)", None),
        ("print('safe')  # \u202e)'evil'(tnirp", "print('safe')  # <U+202E>)'evil'(tnirp"),
        ("admin\u200b = '\u2066hidden\u2069'", "admin<U+200B> = '<U+2066>hidden<U+2069>'"),
        ("print('\x1b[2K', '\x07')", "print('␛[2K', '␇')"),
        ("print('ok')\x0cprint('\u2028next')", "print('ok')␌print('<U+2028>next')"),
        ("print(1)  # \U000e0001\ufe0f\u3164", "print(1)  # <U+E0001><U+FE0F><U+3164>"),
    ],
)
async def test_the_person_sees_what_runs(approved: MakeAgent, code: str, shown: str | None) -> None:
    person = Person("no")
    items = await stream(approved(f"~~~~~~~~python\n{code}\n~~~~~~~~", person=person), TASK)
    [question] = questions_in(items)
    # One block, whatever stands in it, which nobody runs, and behind it the question.
    [seen] = extract_code_blocks(question.content)
    assert (seen.code, seen.no_run) == (shown or code, True)
    assert extract_code_blocks(person.questions[0]) == [seen]
    assert person.questions[0].endswith("Run this code? ")


async def test_a_long_text_says_at_its_top_how_long_it_is(approved: MakeAgent) -> None:
    code = "\n".join(f"print({number})" for number in range(300))
    [question] = questions_in(await stream(approved(python(code), person=Person("no")), TASK))
    assert "300 lines" in question.content[:200]
    assert "yes or no" in question.content[:200]
    assert "open this message to see all of it" in question.content[:300]
    assert code in question.content


async def test_several_blocks_are_one_question(approved: MakeAgent) -> None:
    reply = f"{python('print(1)')}\n\nand\n\n```sh\necho 2\n```"
    person = Person("yes")
    [question] = questions_in(await stream(approved(reply, "Done.", person=person), TASK))
    blocks = extract_code_blocks(question.content)
    assert [(block.language, block.no_run) for block in blocks] == [("python", True), ("sh", True)]


# --- Who else is asked ---

RULES = [
    Rule(pattern=r"\Aprint\(1\)\Z", action="allow"),
    Rule(pattern="rmtree", action="deny", reason="Not here."),
]


@pytest.mark.parametrize(
    ("code", "mode", "questions", "outcome"),
    [
        ("print(1)", "first", 0, "ok"),
        ("print(1)", "all", 1, "rejected"),
        ("print(2)", "first", 1, "rejected"),
        ("import shutil; shutil.rmtree('x')", "first", 0, "rejected"),
        ("import shutil; shutil.rmtree('x')", "all", 0, "rejected"),
    ],
)
@pytest.mark.parametrize("in_chain", [False, True])
async def test_rules_come_first(
    approved: MakeAgent, code: str, mode: Any, questions: int, outcome: str, in_chain: bool
) -> None:
    person, rules = Person("no"), RuleApproval(RULES)
    own = ChainApproval([rules]) if in_chain else rules
    agent = approved(python(code), "Done.", person=person, of={"approval_func": own}, mode=mode)
    response = await turn(agent, TASK)
    assert (len(person.questions), facts_of(response)["outcome"]) == (questions, outcome)
    if "rmtree" in code:
        assert "Not here." in text_of(response)


async def test_a_function_of_the_agents_own_is_asked_too(approved: MakeAgent) -> None:
    def refuse(request: ApprovalRequest) -> ApprovalResponse:
        return ApprovalResponse(approved=False, reason="the function says so")

    person = Person("yes")
    agent = approved(GOOD, person=person, of={"approval_func": refuse}, mode="all")
    assert "the function says so" in text_of(await turn(agent, TASK))
    assert person.questions == []


async def test_without_a_function_the_terminal_is_asked(approved: MakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    # Under pytest there is no terminal; that the question goes there shows in what it says.
    monkeypatch.setattr(sys, "stdin", None)
    items = await stream(approved(GOOD), TASK)
    assert "There is no terminal" in text_of(response_of(items))
    assert questions_in(items) == []


# --- It is the other agent in all else ---


async def test_code_of_others_is_asked_about_too(tmp_path: Path) -> None:
    person = Person("yes", "no")
    agent = HumanApprovedAgent(CodeExecutorAgent("runner", SandboxCodeExecutor(tmp_path)), input_func=person)
    assert "42" in text_of(await turn(agent, GOOD))
    assert facts_of(await turn(agent, GOOD))["outcome"] == "rejected"
    await agent.close()


async def test_code_act_is_asked_step_by_step(tmp_path: Path) -> None:
    person = Person("yes", "yes")
    executor = SandboxCodeExecutor(tmp_path, state="session")
    coder = CodeActAgent(
        "coder", Client(python("x = 40"), python("print(x + 2)"), "42."), executor, model_client_stream=True
    )
    agent = HumanApprovedAgent(coder, input_func=person)
    items = await stream(agent, TASK)
    assert facts_of(response_of(items))["outcome"] == "ok"
    assert len(questions_in(items)) == len(person.questions) == 2
    assert any(isinstance(item, ModelClientStreamingChunkEvent) for item in items)
    state = await agent.save_state()
    assert state == await coder.save_state()
    other = HumanApprovedAgent(
        CodeActAgent("coder", Client("Hm."), SandboxCodeExecutor(tmp_path / "b")), input_func=person
    )
    await other.load_state(state)
    assert await other.save_state() == state
    await agent.on_reset(CancellationToken())
    assert (await agent.save_state())["cells"] == []
    await agent.close()
    await other.close()


async def test_the_response_holds_what_the_other_agent_said(approved: MakeAgent) -> None:
    # The question is for the person: other agents, and conditions that end a run, are told nothing of it.
    response = await turn(approved(GOOD, "Done.", person=Person("yes")), TASK)
    assert [type(message) for message in response.inner_messages or ()] == [CodeGenerationEvent, CodeExecutionEvent]


async def test_outside_of_a_turn_it_is_asked_too(approved: MakeAgent) -> None:
    person = Person("no")
    agent = approved(person=person)
    assert isinstance(agent.agent, CodeExecutorAgent)
    result = await agent.agent.execute_code_block([CodeBlock(code="print(1)", language="python")], CancellationToken())
    assert result.exit_code == 1
    assert "print(1)" in person.questions[0]


async def test_a_pause_holds_it(approved: MakeAgent) -> None:
    person = Person("yes")
    agent = approved(GOOD, "Done.", person=person)
    await agent.on_pause(CancellationToken())
    running, _ = begin(agent, TASK)
    await asyncio.sleep(0.1)
    assert person.questions == []
    await agent.on_resume(CancellationToken())
    async with asyncio.timeout(30):
        assert facts_of(await running)["outcome"] == "ok"


@pytest.mark.parametrize("make_team", [RoundRobinGroupChat, CodingTeam])
async def test_two_questions_in_a_team(approved: MakeAgent, make_team: Callable[..., Any]) -> None:
    person = Person("yes", "no")
    coder = approved(GOOD, "Done.", python("print(2)"), person=person)
    reviewer = ReviewerAgent("reviewer", Client('{"approved": false, "issues": [], "summary": "Again."}'))
    team = make_team([coder, reviewer], max_turns=3)
    async with asyncio.timeout(60):
        *messages, result = [item async for item in team.run_stream(task=TASK)]
    assert ["6 * 7" in message.content for message in questions_in(messages)] == [True, False]
    assert isinstance(result, TaskResult)
    assert [message.metadata.get(keys.OUTCOME) for message in result.messages if keys.SUMMARY in message.metadata] == [
        "ok",
        "rejected",
    ]
    said = [message for message in result.messages if isinstance(message, BaseChatMessage)]
    assert "print(2)" in said[-1].to_model_text()


# --- Configs ---


async def test_it_comes_back_from_its_config(tmp_path: Path) -> None:
    coder = CodeExecutorAgent("coder", SandboxCodeExecutor(tmp_path), approval_func=NeverApprove(reason="Never."))
    agent = HumanApprovedAgent(coder, timeout=None, prompt="May it run?", mode="all")
    assert (agent.name, agent.description) == (coder.name, coder.description)
    dumped = agent.dump_component()
    assert dumped.provider == "coderoom.agents.HumanApprovedAgent"
    assert (dumped.component_type, dumped.config["timeout"], dumped.config["name"]) == ("agent", None, "coder")
    assert dumped.config["agent"]["config"]["approval"]["provider"] == "coderoom.approval.NeverApprove"
    loaded = HumanApprovedAgent.load_component(dumped)
    assert loaded.dump_component() == dumped
    assert isinstance(ChatAgent.load_component(dumped), HumanApprovedAgent)
    assert "Never." in text_of(await turn(loaded, GOOD))


def test_a_name_in_its_config_is_the_other_agents_too(tmp_path: Path) -> None:
    dumped = HumanApprovedAgent(CodeExecutorAgent("coder", SandboxCodeExecutor(tmp_path))).dump_component()
    dumped.config["name"] = "coder_2"
    loaded = HumanApprovedAgent.load_component(dumped)
    assert (loaded.name, loaded.agent.name) == ("coder_2", "coder_2")


def test_the_shipped_team_is_valid_and_comes_back(tmp_path: Path) -> None:
    assert check_team("human-approves") == []
    file = tmp_path / "r.json"
    file.write_text(json.dumps({"replies": ["x"]}))
    team = load_team("human-approves", model=f"replay:{file}")
    assert isinstance(team, CodingTeam)
    [agent] = team.participants
    assert isinstance(agent, HumanApprovedAgent)
    again = tmp_path / "again.yaml"
    again.write_text(dump_team(team))
    assert check_team(again) == []
    assert "coderoom.agents.HumanApprovedAgent" in again.read_text()


async def test_a_question_is_no_turn_of_a_run(approved: MakeAgent) -> None:
    team = CodingTeam([approved(GOOD, "Done.", person=Person("yes"))], max_turns=1)
    record = await run_team(team, RunRecord(team="t", task=TASK), lambda message: None)
    assert (record.turns, record.attempts, record.outcome) == (1, 1, "ok")


class Mine(HumanApprovedAgent):
    """A user's own."""


def test_a_subclass_is_dumped_under_its_own_name(tmp_path: Path) -> None:
    agent = Mine(CodeExecutorAgent("coder", SandboxCodeExecutor(tmp_path)))
    assert agent.dump_component().provider == "tests.agents.test_human_approved.Mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"timeout": 0}, "timeout"), ({"timeout": float("nan")}, "timeout"), ({"mode": "some"}, "mode")],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    coder = CodeExecutorAgent("coder", SandboxCodeExecutor(tmp_path))
    with pytest.raises(ValueError, match=words):
        HumanApprovedAgent(coder, **arguments)


def test_an_agent_that_runs_no_code_is_refused() -> None:
    with pytest.raises(TypeError, match="ReviewerAgent"):
        HumanApprovedAgent(ReviewerAgent("reviewer", Client()))  # type: ignore[arg-type]


# --- Calls ---


async def test_calls_ask_the_same_person(approved: MakeAgent, tmp_path: Path) -> None:
    paid: list[int] = []

    def pay(number: int) -> Annotated[None, Effect("write")]:
        """Pay somebody."""
        paid.append(number)

    person = Person("edit: pay(4)", "yes", "no because it is too much")
    chain = ChainApproval([RuleApproval([]), HumanApproval()])
    coder = CodeActAgent(
        "coder",
        Client(python("pay(3)\npay(5)"), "Done."),
        SandboxCodeExecutor(tmp_path),
        tools=[pay],
        call_approval=chain,
    )
    coder_asks = HumanApprovedAgent(coder, input_func=person, mode="first")
    coder.ask_instead(AlwaysApprove())
    items = await stream(coder_asks, TASK)
    await coder_asks.close()
    assert paid == [4]
    assert len(questions_in(items)) == 3
    assert person.questions[0].startswith("Make this call?")
    assert "pay() was not allowed: it is too much" in text_of(response_of(items))

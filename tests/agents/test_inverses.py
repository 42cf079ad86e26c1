"""Calls whose code is undone are undone by their inverses, the last one first, each once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

import pytest
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core.code_executor import ImportFromModule
from autogen_core.tools import FunctionTool

from coderoom.agents import CodeActAgent, CodeExecutorAgent
from coderoom.approval import AlwaysApprove, CallRequest, CallRule, Edited
from coderoom.configs import ReplayModel, dump_team
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.sandbox import Effect, Limits
from coderoom.steps import StepObserver, observing
from coderoom.teams import CodingTeam
from tests.agents.acting import MakeActor, remembered
from tests.agents.helpers import TASK, Client, python, turn
from tests.support.commands import coderoom_process

FAILS = "1 / 0"


class Store:
    """Functions that write, of which some can be undone."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.asked: list[str] = []

    def create(self, name: str, size: int = 1) -> Annotated[int, Effect("write", inverse="remove")]:
        """Create something; return its number."""
        self.made.append(("create", name, size))
        return len(self.made)

    async def remove(self, result: int, size: int) -> Annotated[None, Effect("write")]:
        """Remove what has this number."""
        self.made.append(("remove", result, size))

    def send(self, text: str) -> Annotated[None, Effect("write")]:
        """Send something, which cannot be taken back."""
        self.made.append(("send", text))

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        assert isinstance(request, CallRequest)
        self.asked.append(request.function)
        if request.arguments.get("name") == "wrong":
            return Edited(code="create('right', size=7)")
        return ApprovalResponse(approved=True, reason="")

    @property
    def functions(self) -> list[Any]:
        return [self.create, self.remove, self.send]


class Person(StepObserver):
    """Is told what became of calls."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


async def test_the_inverses_of_undone_code_run_in_reverse_order(actor: MakeActor) -> None:
    store = Store()
    code = f"x = create('a')\nsend('hello')\ncreate('b', size=3)\ncreate('wrong')\n{FAILS}"
    client = Client(python(code), "It failed.")
    agent = actor(client, tools=store.functions, call_approval=store.decide, on_error="rollback")
    person = Person()
    with observing(person):
        await turn(agent, TASK)
    assert person.notes == ["send(text='hello') was not undone: it has no inverse."]
    assert store.made[:4] == [("create", "a", 1), ("send", "hello"), ("create", "b", 3), ("create", "right", 7)]
    assert store.made[4:] == [("remove", 4, 7), ("remove", 3, 3), ("remove", 1, 1)]
    assert store.asked == ["create", "send", "create", "create"]  # Nobody is asked about inverses.
    told = (await remembered(agent))[-2]
    lines = "create(name='right', size=7)", "create(name='b', size=3)", "create(name='a', size=1)"
    assert "\n".join(f"{line} was undone by remove()." for line in lines) in told.replace("\n\n", "\n")
    not_undone = told.partition("are not undone:")[2]
    assert "send(" in not_undone
    assert "create(" not in not_undone


async def test_what_code_has_undone_itself_is_not_undone_again(actor: MakeActor) -> None:
    store, person = Store(), Person()
    code = f"x = create('a')\ny = create('b')\nawait remove(x, size='1')\nawait remove(y, 5)\n{FAILS}"
    agent = actor(
        Client(python(code), "It failed."), tools=store.functions, call_approval=store.decide, on_error="rollback"
    )
    with observing(person):
        await turn(agent, TASK)
    assert store.made[2:] == [("remove", 1, 1), ("remove", 2, 5), ("remove", 2, 1)]
    assert person.notes == ["remove(result=2, size=5) was not undone: it has no inverse."]


async def test_a_call_that_nobody_allowed_was_never_made(actor: MakeActor) -> None:
    store, person = Store(), Person()

    def decide(request: ApprovalRequest) -> ApprovalResponse:
        return ApprovalResponse(approved="'b'" not in request.code, reason="no b")

    code = f"create('a')\ntry:\n    create('b')\nexcept PermissionError as error:\n    print(error)\n{FAILS}"
    agent = actor(
        Client(python(code), "It failed."),
        tools=store.functions,
        call_approval=decide,
        call_rules=[CallRule(function="remove", effect="forbidden")],
        on_error="rollback",
    )
    with observing(person):
        await turn(agent, TASK)
    told = (await remembered(agent))[-2]
    assert "create() was not allowed: no b" in told
    assert "create('b'" not in told.partition("not undone")[2]
    (note,) = person.notes
    assert note.startswith("create(name='a', size=1) was not undone: remove() failed")


async def test_what_cannot_be_undone_is_told(actor: MakeActor) -> None:
    def book(seat: int) -> Annotated[int, Effect("write", inverse="cancel")]:
        """Book a seat."""
        return seat

    def cancel(seat: int) -> None:
        """Cancel a seat."""
        raise OSError("the train has left")

    @Effect("read")
    def trains() -> list[str]:
        """What goes."""
        return ["9:15"]

    code = f"trains()\nbook(5)\ntry:\n    book('x')\nexcept TypeError:\n    pass\n{FAILS}"
    agent = actor(
        Client(python(code), "It failed."),
        tools=[book, cancel, trains],
        call_approval=AlwaysApprove(),
        on_error="rollback",
    )
    await turn(agent, TASK)
    told = (await remembered(agent))[-2]
    assert "book(seat=5) was not undone: cancel() failed: OSError: the train has left." in told
    # Neither what only reads is told, nor what was refused.
    assert [line for line in told.partition("are not undone:")[2].splitlines() if line] == ["- book(seat=5): ok"]


async def test_extra_arguments_of_a_call_set_none_of_its_inverse(actor: MakeActor) -> None:
    undone: list[Any] = []

    def create(path: str, **options: Any) -> Annotated[str, Effect("write", inverse="delete")]:
        """Create something."""
        return path

    def delete(path: str, result: str, recursive: bool = False, **options: Any) -> None:
        """Delete it."""
        undone.append((path, result, recursive, options))

    code = f"create('a', recursive=True, result='/', color='red')\n{FAILS}"
    tools = [create, delete]
    agent = actor(Client(python(code), "No."), tools=tools, call_approval=AlwaysApprove(), on_error="rollback")
    await turn(agent, TASK)
    assert undone == [("a", "a", False, {"color": "red"})]


async def test_kept_code_keeps_its_calls(actor: MakeActor) -> None:
    store = Store()
    replies = python("create('a')"), python(f"create('b')\n{FAILS}"), "It failed."
    agent = actor(Client(*replies), tools=store.functions, call_approval=AlwaysApprove(), on_error="rollback")
    await turn(agent, TASK)
    assert store.made == [("create", "a", 1), ("create", "b", 1), ("remove", 2, 1)]
    store.made.clear()
    agent = actor(
        Client(python(f"create('a')\n{FAILS}"), "It failed."), tools=store.functions, call_approval=AlwaysApprove()
    )
    await turn(agent, TASK)
    assert store.made == [("create", "a", 1)]


async def test_the_calls_of_branches_that_lose_are_undone(actor: MakeActor) -> None:
    store = Store()
    replies = python(FAILS), python("create('a')"), python(f"create('b')\n{FAILS}"), "Done."
    agent = actor(Client(*replies), tools=store.functions, call_approval=AlwaysApprove(), branches=2)
    await turn(agent, TASK)
    assert sorted(store.made[:2]) == [("create", "a", 1), ("create", "b", 1)]
    assert store.made[2:] == [("remove", store.made.index(("create", "b", 1)) + 1, 1)]
    assert any("create(name='b', size=1) was undone by remove()." in text for text in await remembered(agent))


async def test_what_branches_leave_is_told_once(actor: MakeActor) -> None:
    """Both fail and are undone: one goes on with its attempt, which tells of its own calls."""
    store = Store()
    one, two = python(f"create('a')\nsend('one')\n{FAILS}"), python(f"send('two')\n{FAILS}")
    replies = python(FAILS), one, two, "No.", "No."
    agent = actor(
        Client(*replies), tools=store.functions, call_approval=AlwaysApprove(), branches=2, on_error="rollback"
    )
    await turn(agent, TASK)
    assert ("remove", store.made.index(("create", "a", 1)) + 1, 1) in store.made
    told = "\n".join(await remembered(agent))
    assert [told.count(f"- send(text={text!r})") for text in ("one", "two")] == [1, 1]


async def test_rules_name_inverses_of_functions_that_name_none(actor: MakeActor) -> None:
    names: list[str] = []
    added: list[str] = []

    def add_name(name: str) -> None:
        names.append(name)
        added.append(name)

    def drop_name(name: str) -> None:
        names.remove(name)

    tools = [FunctionTool(add_name, "Add."), FunctionTool(drop_name, "Drop.")]
    rules = [CallRule(function="add_*", effect="read"), CallRule(function="add_*", effect="write", inverse="drop_name")]
    code = python(f"add_name(name='a')\nadd_name(name='b')\n{FAILS}")
    agent = actor(
        Client(code, "No."), tools=tools, call_approval=AlwaysApprove(), call_rules=rules, on_error="rollback"
    )
    await turn(agent, TASK)
    assert (added, names) == (["a", "b"], [])


async def test_an_inverse_that_does_not_fit_is_refused(actor: MakeActor) -> None:
    def cancel(ticket: str) -> None:
        """Cancel a ticket."""

    for inverse, words in [("cancel", "it needs 'ticket'"), ("forget", r"forget\(\), which undoes buy\(\), is none")]:

        def buy(seat: int) -> None:
            """Buy a ticket."""

        tools = [Effect("write", inverse=inverse)(buy), cancel]
        with pytest.raises(ValueError, match=words):
            actor(Client(python("1")), tools=tools, call_approval=AlwaysApprove())
    with pytest.raises(RequestError, match="only calls that write"):
        Effect("read", inverse="cancel")


def note(text: str) -> int:
    """Write something down, unless the machine breaks down."""
    if text == "breaks":
        os._exit(9)
    with Path("notes").open("a") as file:
        return file.write(f"{text}\n")


def unnote(text: str) -> None:
    """Take something back, unless the machine breaks down."""
    with Path("notes").open("a") as file:
        file.write(f"not {text}\n")
    if text == "b" and not Path("broken").exists():
        Path("broken").touch()
        os._exit(9)


def killed_and_resumed(path: Path, *replies: str) -> str:
    """What a run shows that is resumed after its process has ended in a call."""
    used: list[Any] = ["os", ImportFromModule("pathlib", ("Path",))]
    agent = CodeActAgent(
        "actor",
        ReplayModel([*replies, "It failed."]),
        SandboxCodeExecutor(),
        tools=[FunctionTool(each, "Notes.", global_imports=used) for each in (note, unnote)],
        call_approval=AlwaysApprove(),
        call_rules=[CallRule(function="note", effect="write", inverse="unnote")],
        on_error="rollback",
    )
    dump_team(CodingTeam([agent], max_turns=1), path / "team.yaml")
    # AutoGen warns of each function whose source stands in a config.
    env = {"CODEROOM_JOURNAL": str(path / "journal.sqlite3"), "PYTHONWARNINGS": "ignore"}
    killed = coderoom_process("run", "team.yaml", "Note it.", cwd=path, env=env)
    assert killed.returncode == 9, killed.stderr
    resumed = coderoom_process("resume", "last", cwd=path, env=env)
    return " ".join((resumed.stdout + resumed.stderr).split())


@pytest.mark.slow
def test_a_run_that_is_killed_undoes_the_rest_and_nothing_twice(tmp_path: Path) -> None:
    shown = killed_and_resumed(tmp_path, python(f"for each in 'abc':\n    note(text=each)\n{FAILS}"))
    assert (tmp_path / "notes").read_text().split("\n")[:-1] == ["a", "b", "c", "not c", "not b", "not a"]
    assert "unnote() may have undone it: it had begun when the run was ended" in shown


@pytest.mark.slow
def test_a_resumed_run_undoes_no_calls_of_code_before(tmp_path: Path) -> None:
    """That code runs again for its variables, with the answers that its calls had."""
    shown = killed_and_resumed(
        tmp_path, python("x = note(text='kept')"), python("note(text='a')\nprint(x)\nnote(text='breaks')")
    )
    assert (tmp_path / "notes").read_text().split("\n")[:-1] == ["kept", "a", "not a"]
    assert "note() had begun with these arguments when the run was ended" in shown


async def test_concurrent_calls_are_told_apart(actor: MakeActor) -> None:
    """The first call ends last, and one call has an effect before its answer is refused."""

    async def put(name: str) -> Annotated[str, Effect("write", inverse="take")]:
        """Put something."""
        await asyncio.sleep(0.05 if name == "slow" else 0)
        if name == "broken":
            raise ConnectionError("it was put, but the line broke")
        return "x" * (5_000 if name == "long" else 1)

    def take(name: str) -> None:
        """Take it back."""
        if name == "quick":
            raise OSError("it is gone")

    code = (
        "import asyncio\nnames = 'slow', 'broken', 'long', 'quick'\n"
        f"await asyncio.gather(*map(put, names), return_exceptions=True)\n{FAILS}"
    )
    executor = SandboxCodeExecutor(limits=Limits(value_bytes=1_000))
    agent = actor(
        Client(python(code), "It failed."),
        tools=[put, take],
        call_approval=AlwaysApprove(),
        on_error="rollback",
        code_executor=executor,
    )
    await turn(agent, TASK)
    told = (await remembered(agent))[-2]
    for name in ("slow", "long"):
        assert f"put(name='{name}') was undone by take()." in told
    assert "put(name='quick') was not undone: take() failed: OSError: it is gone." in told
    left = told.partition("are not undone:")[2]
    assert [name for name in ("slow", "broken", "long", "quick") if f"name='{name}'" in left] == ["broken", "quick"]


async def test_a_rule_that_forbids_a_function_forbids_it_as_an_inverse(actor: MakeActor) -> None:
    store = Store()
    rules = [CallRule(function="remove", arguments={"size": "3"}, effect="forbidden")]
    agent = actor(
        Client(python(f"create('a')\ncreate('b', size=3)\n{FAILS}"), "It failed."),
        tools=store.functions,
        call_approval=AlwaysApprove(),
        call_rules=rules,
        on_error="rollback",
    )
    await turn(agent, TASK)
    assert store.made[2:] == [("remove", 1, 1)]
    told = (await remembered(agent))[-2]
    assert (
        "create(name='b', size=3) was not undone: remove() failed: PermissionError: remove() is forbidden here." in told
    )
    assert "create(name='b'" in told.partition("are not undone:")[2]


@pytest.mark.parametrize("first", [CodeActAgent, CodeExecutorAgent])
async def test_calls_in_a_session_that_agents_share_are_undone(first: type[Any]) -> None:
    """Each agent undoes those of its own attempt, whoever offers the functions."""
    store = Store()
    fails, works = python(f"create('b')\nsend('hello')\n{FAILS}"), python("create('c')")
    given: dict[str, Any] = {"call_approval": AlwaysApprove()} if first is CodeActAgent else {}
    settings: dict[str, Any] = {"on_error": "rollback"} if given else {"retry_from": "clean", "max_retries_on_error": 1}
    retry = [] if given else ['{"reason": "It failed.", "retry": true}']
    client = Client(fails, *retry, works, "Done.")
    offers = CodeActAgent(
        "offers", Client(python("create('a')"), "Set."), SandboxCodeExecutor(), tools=store.functions,
        call_approval=AlwaysApprove(),
    )  # fmt: skip
    fixes = first("fixes", code_executor=SandboxCodeExecutor(), model_client=client, **settings, **given)
    team = CodingTeam([offers, fixes], max_turns=2, shared_session=True)
    await team.run(task=TASK)
    await team.close()
    made = [("create", "a", 1), ("create", "b", 1), ("send", "hello"), ("remove", 2, 1), ("create", "c", 1)]
    assert store.made == made
    told = "\n".join(await remembered(fixes))
    assert "create(name='b', size=1) was undone by remove()." in told

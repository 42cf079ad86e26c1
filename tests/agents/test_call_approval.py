"""Code that tries to get around the approval of its calls: none of it makes a call that was not allowed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import pytest
from autogen_agentchat.agents import ApprovalFuncType
from autogen_core.tools import FunctionTool, StaticWorkbench
from pydantic import Base64Bytes, BaseModel, Field

from coderoom.approval import (
    Always,
    AlwaysApprove,
    ApprovalRequest,
    ApprovalResponse,
    CallRequest,
    CallRule,
    ChainApproval,
    Edited,
    HumanApproval,
    InputApproval,
    NeverApprove,
    Rule,
    RuleApproval,
)
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.sandbox import Effect, Limits
from coderoom.steps import APPROVAL, CALL_BEGUN, StepObserver, observing
from tests.agents.acting import MakeActor, outputs
from tests.agents.helpers import Client, python, stream, text_of, texts, turn

Writes = Annotated[str, Effect("write")]


class Bank:
    """Functions that write, whose calls are noted, and a person who allows what is below 50."""

    def __init__(self) -> None:
        self.paid: list[Any] = []
        self.asked: list[CallRequest] = []
        self.asking = self.most_asking = 0
        self.meanwhile: Callable[[], Any] = lambda: asyncio.sleep(0)

    def pay(self, number: int, to: str = "Ann", *, notes: list[str] | None = None) -> Annotated[str, Effect("write")]:
        """Pay somebody."""
        self.paid.append((number, to) if notes is None else (number, to, notes))
        return f"{to} got {number}"

    async def pay_later(self, number: int) -> Annotated[str, "in words", Effect("write")]:
        """Pay somebody later."""
        self.paid.append(number)
        return f"later {number}"

    @Effect("forbidden")
    def close(self) -> None:
        """Close the bank."""
        self.paid.append("closed")

    def look(self, number: int) -> Annotated[int, Effect("read")]:
        """Look something up."""
        return number * 2

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        assert isinstance(request, CallRequest)
        self.asking += 1
        self.most_asking = max(self.asking, self.most_asking)
        self.asked.append(request)
        await self.meanwhile()
        self.asking -= 1
        return ApprovalResponse(approved=request.arguments["number"] < 50, reason="too much")

    @property
    def functions(self) -> list[Any]:
        return [self.pay, self.pay_later, self.close, self.look]


@pytest.fixture
def bank() -> Bank:
    return Bank()


async def output_of(actor: MakeActor, bank: Bank, *codes: str, approval: Any = None, **arguments: Any) -> str:
    """What the last of some cells of an agent has printed."""
    given = {"tools": bank.functions, "call_approval": approval or bank.decide, **arguments}
    agent = actor(Client(*map(python, codes), "Done."), **given)
    return outputs(await stream(agent, "Pay."))[-1]


def test_a_function_that_writes_needs_an_approval(actor: MakeActor, bank: Bank) -> None:
    with pytest.raises(ValueError, match=r"pay\(\) need a call_approval"):
        actor(Client("Well."), tools=[bank.pay])
    with pytest.raises(ValueError, match=r"'look' needs a call_approval"):
        actor(Client("Well."), tools=[bank.look], call_rules=[CallRule(function="look", effect="write")])
    actor(Client("Well."), tools=[bank.pay], call_rules=[CallRule(function="p*", effect="read")])


async def test_what_is_asked_is_the_whole_call_and_where_it_comes_from(actor: MakeActor, bank: Bank) -> None:
    code = "print(look(4))\nprint(pay(5, 'A\\u202e\\x1b\\n', notes=['a' * 80, 'b']))"
    await output_of(actor, bank, code)
    [request] = bank.asked
    assert (request.function, request.agent) == ("pay", "actor")
    assert request.arguments == {"number": 5, "to": "A\u202e\x1b\n", "notes": ["a" * 80, "b"]}
    assert request.block == python(code)
    assert "print(look(4))" in str(request.context[-1].content)
    lines = ["pay(", "    number=5,", "    to='A\\u202e\\x1b\\n',", f"    notes=['{'a' * 80}', 'b'],", ")"]
    assert request.code.splitlines() == ["```python", *lines, "```"]


async def test_no_argument_looks_like_another_one(actor: MakeActor) -> None:
    """Letters of other alphabets in a word, and names that Python takes for others; whole words stay as they are."""
    asked: list[str] = []

    def send(text: str, **others: str) -> Writes:
        """Send something."""
        return str(others)

    def edit(request: CallRequest) -> Edited:
        asked.append(request.code)
        return Edited(code=request.code)

    word = "\u0436\u0443\u043a"
    code = f"print(send('\u0410nn {word}', **{{'\uff54o': 'Eve', 'from': 'Bob'}}))"
    agent = actor(Client(python(code), "Sent."), tools=[send], call_approval=edit)
    assert outputs(await stream(agent, "Send.")) == ["{'\uff54o': 'Eve', 'from': 'Bob'}\n"]
    assert asked == [python(f"send(text='\\u0410nn {word}', **{{'\\uff54o': 'Eve', 'from': 'Bob'}})")]


HOSTILE = {
    "an alias": "f = pay\nf(100)",
    "getattr": "import __main__\ngetattr(__main__, 'pa' + 'y')(100)",
    "exec": "exec('pay(100)')",
    "a partial": "import functools\nfunctools.partial(pay, 100)()",
    "text for a number": "pay('100')",
    "a stub without its signature": "pay.__signature__ = None\npay.__defaults__ = (5,)\npay(100)",
    "a stub of an own name": "def pay_5(n): return pay(n)\npay_5.__name__ = 'look'\npay_5(100)",
    "another name in the message": (
        "functions = pay.__closure__[0].cell_contents\nnames = [each.cell_contents for each in pay.__closure__]\n"
        "functions = next(each for each in names if not isinstance(each, str))\nfunctions.call('pay', (100,), {})"
    ),
    "the raw protocol": (
        "functions = next(each.cell_contents for each in pay.__closure__ if not isinstance(each.cell_contents, str))\n"
        "call = {'event': 'call', 'call': 1, 'name': 'pay', 'kwargs': {}}\n"
        "functions._channel.send({**call, 'args': [5]})\nfunctions._channel.send({**call, 'args': [100]})\n"
        "functions._channel.send({'op': 'reply', 'call': 1, 'value': True, 'approved': True})\n"
        "import time\ntime.sleep(0.2)\npay(7)"
    ),
}


@pytest.mark.parametrize("way", HOSTILE)
async def test_no_way_to_call_gets_around(actor: MakeActor, bank: Bank, way: str) -> None:
    await output_of(actor, bank, HOSTILE[way])
    assert 100 in [request.arguments["number"] for request in bank.asked]
    assert all(number < 50 for number, *_ in bank.paid)


async def test_concurrent_calls_are_asked_one_by_one_and_each_decided_by_itself(actor: MakeActor, bank: Bank) -> None:
    bank.meanwhile = lambda: asyncio.sleep(0.01)
    threads = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def work(n):\n    try: return pay(n)\n    except PermissionError: return 'no'\n"
        "with ThreadPoolExecutor(6) as pool: print(list(pool.map(work, [1, 100, 2, 200])))"
    )
    tasks = (
        "import asyncio\n"
        "print(await asyncio.gather(*map(pay_later, [3, 300, 4]), return_exceptions=True))\n"
        "await asyncio.gather(pay_later(5), asyncio.to_thread(pay, 6))"
    )
    await output_of(actor, bank, threads, tasks)
    assert sorted(map(str, bank.paid)) == ["(1, 'Ann')", "(2, 'Ann')", "(6, 'Ann')", "3", "4", "5"]
    assert (len(bank.asked), bank.most_asking) == (9, 1)


async def test_the_code_stands_still_while_somebody_decides(actor: MakeActor, bank: Bank) -> None:
    """No thread changes an argument, or computes; a longest pause shows it."""
    bank.meanwhile = lambda: asyncio.sleep(0.4)
    code = (
        "import threading, time\nnotes, longest, measured = ['shown'], 0, threading.Event()\n"
        "def change():\n    global longest\n    last = time.monotonic()\n    while True:\n"
        "        notes[0] = 'changed'\n        now = time.monotonic(); longest = max(longest, now - last); last = now\n"
        "        measured.set()\n"
        "pay(5, notes=['first'])\nthreading.Thread(target=change, daemon=True).start()\nmeasured.wait()\n"
        "pay(6, notes=notes)\nfor _ in range(2):\n    measured.clear(); measured.wait()\nprint(longest > 0.3)"
    )
    assert await output_of(actor, bank, code) == "True\n"
    assert [each[2] for each in bank.paid] == [request.arguments["notes"] for request in bank.asked]


@pytest.mark.slow
async def test_no_time_limit_runs_while_somebody_decides(actor: MakeActor, bank: Bank) -> None:
    bank.meanwhile = lambda: asyncio.sleep(0.7)
    executor = SandboxCodeExecutor(timeout=0.6, limits=Limits(call_seconds=0.5))
    code = "print(pay(5))\nwhile True: pass"
    given = {"code_executor": executor, "max_seconds": 3.0, "approval": bank.decide}
    output = await output_of(actor, bank, code, **given)
    assert output.startswith("Ann got 5\n")
    assert "0.6" in output  # That of the cell ends it afterwards.


async def test_a_yes_is_not_used_again_after_a_rollback(actor: MakeActor, bank: Bank) -> None:
    code = "pay(5)\n1 / 0"
    await output_of(actor, bank, code, "try: pay(5)\nfinally: 2 / 0", on_error="rollback")
    assert (len(bank.asked), len(bank.paid)) == (2, 2)


async def test_calls_after_the_end_of_the_code_are_not_made(actor: MakeActor, bank: Bank) -> None:
    left = (
        "import threading, time\ndef later():\n    time.sleep(0.1)\n    pay(9)\nthreading.Thread(target=later).start()"
    )
    await output_of(actor, bank, left, "import time\ntime.sleep(0.3)")
    assert len(bank.asked) == len(bank.paid)


async def test_a_no_can_be_caught_and_after_three_nobody_is_asked(actor: MakeActor, bank: Bank) -> None:
    code = (
        "for n in range(100, 110):\n    try: pay(n)\n    except PermissionError as error: print(error)\n"
        "try: close()\nexcept PermissionError as error: print(error)"
    )
    output = await output_of(actor, bank, code)
    assert output.count("pay() was not allowed: too much\n") == len(bank.asked) == 3
    assert output.count("nobody is asked about it again") == 7
    assert output.endswith("close() is forbidden here\n")
    assert bank.paid == []


@pytest.mark.parametrize(
    ("edited", "result"),
    [
        ("pay(7, to='Bob')", "Bob got 7"),
        ("```python\npay(number=8)\n```", "Ann got 8"),
        ("close()", "must be one call of pay()"),
        ("pay(7); close()", "no single call of pay()"),
        ("pay(int('7'))", "the argument 1 must be a literal"),
        ("pay('much')", "number: Input should be a valid integer"),
        ("pay(9, to='Eve')", "pay() is forbidden here, also as it was edited"),
    ],
)
async def test_an_edited_call_is_another_call_of_the_same_function(
    actor: MakeActor, bank: Bank, edited: str, result: str
) -> None:
    rules = [CallRule(function="pay", arguments={"to": "Eve"}, effect="forbidden")]
    output = await output_of(
        actor, bank, "print(pay(5))", approval=lambda request: Edited(code=edited), call_rules=rules
    )
    assert result in output
    assert len(bank.paid) == result.endswith(("7", "8"))


async def test_the_model_and_others_see_an_edited_call_as_it_was_made(actor: MakeActor, bank: Bank) -> None:
    client = Client(python("done = pay(5)"), "Five were paid.")
    agent = actor(client, tools=bank.functions, call_approval=lambda request: Edited(code="pay(7, to='Bob')"))
    response = await turn(agent, "Pay.")
    made = "pay(number=7, to='Bob', notes=None), as it was edited: ok"
    assert made in texts(client.calls[-1].messages)[-1]
    assert made in text_of(response)
    assert [event.metadata["coderoom.calls"] for event in response.inner_messages or () if event.metadata] == [
        json.dumps([made])
    ]


async def test_always_to_an_edited_call_holds_for_others(actor: MakeActor, bank: Bank) -> None:
    questions: list[str] = []

    def answer(question: str) -> str:
        questions.append(question)
        return "edit: pay(7)" if len(questions) == 1 else "always"

    await output_of(actor, bank, "pay(5)\npay(6)", approval=InputApproval(answer))
    assert [number for number, _ in bank.paid] == [7, 6]
    assert len(questions) == 2


@pytest.mark.parametrize("mode", ["first", "all"])
async def test_always_holds_for_persons_in_one_session(
    actor: MakeActor, bank: Bank, mode: Literal["first", "all"]
) -> None:
    questions: list[str] = []

    def answer(question: str) -> str:
        questions.append(question)
        return "always"

    rule = Rule(pattern=r"to='Eve'", action="deny", reason="not to her")
    approval = ChainApproval([RuleApproval([rule]), InputApproval(answer)], mode)
    code = "pay(1)\npay(2)\ntry: pay(3, 'Eve')\nexcept PermissionError as error: print(error)"
    agent = actor(Client(*[python(code), "Done."] * 2), tools=bank.functions, call_approval=approval)
    items = await stream(agent, "Pay.")
    assert outputs(items) == ["pay() was not allowed: not to her\n"]
    assert [number for number, _ in bank.paid] == [1, 2]
    assert len(questions) == 1
    assert "A call of pay() by actor that waits for approval." in questions[0]
    await agent.close()
    await stream(agent, "Pay again.")
    assert len(questions) == 2


async def test_rules_see_what_the_function_gets(actor: MakeActor, bank: Bank) -> None:
    rules = [
        CallRule(function="pay", arguments={"number": "1[0-9]"}, effect="forbidden"),
        CallRule(function="pay*", arguments={"to": "Ann"}, effect="read"),
    ]
    code = (
        "print(pay(5))\n"
        "for n in ('12', ' 13', 14.0):\n    try: pay(n)\n    except PermissionError as error: print(error)\n"
        "try: pay(6, 'Bob')\nexcept PermissionError as error: print(error)"
    )
    output = await output_of(actor, bank, code, approval=NeverApprove(reason="no"), call_rules=rules)
    assert output == "Ann got 5\n" + "pay() is forbidden here\n" * 3 + "pay() was not allowed: no\n"


async def test_no_argument_hides_another_one_from_rules(actor: MakeActor) -> None:
    """By its name, by one that is no data, or where the tool itself converts it."""
    made: list[Any] = []

    def read(path: str, /, *lines: int, **options: Any) -> str:
        """Read a file."""
        made.append(path)
        return path

    def store(number: int, data: Base64Bytes) -> str:
        """Store something."""
        made.append(number)
        return "stored"

    def count(number: int) -> str:
        """Count."""
        made.append(number)
        return "counted"

    def any_type(one) -> None:  # type: ignore[no-untyped-def]
        made.append(one)

    rules = [
        CallRule(function="read", arguments={"path": "safe", "lines": r"\[\]|\(\)"}, effect="read"),
        CallRule(function="*", arguments={"number": "13"}, effect="forbidden"),
        CallRule(function="any_type", arguments={"one": "1"}, effect="forbidden"),
        CallRule(function="read", effect="forbidden"),
    ]
    calls = [
        "any_type(True)",
        "read('evil', path='safe')",
        "store(' 13', '//79')",
        "count(' 13')",
        "count(13.0)",
        "serve(13.0)",
    ]
    code = "\n".join(f"try: print({call})\nexcept PermissionError: print('no')" for call in calls)
    tools = [read, store, any_type, FunctionTool(count, "Count.")]
    served = StaticWorkbench([FunctionTool(count, "Count.", name="serve")])
    agent = actor(Client(python(code), "Done."), tools=tools, workbench=served, call_rules=rules)
    assert outputs(await stream(agent, "Count."))[-1] == "no\n" * len(calls)
    assert made == []


@pytest.mark.parametrize("approval", [AlwaysApprove(), RuleApproval([], default="allow"), lambda request: True])
async def test_every_approval_can_decide(actor: MakeActor, bank: Bank, approval: ApprovalFuncType) -> None:
    assert await output_of(actor, bank, "print(pay(500))", approval=approval) == "Ann got 500\n"


def test_a_rule_for_an_argument_that_is_not_there_is_an_error(actor: MakeActor, bank: Bank) -> None:
    rule = CallRule(function="look", arguments={"nummer": "1"}, effect="forbidden")
    with pytest.raises(RequestError, match=r"look\(\) names the argument 'nummer'; it has: number"):
        actor(Client("Well."), tools=[bank.look], call_rules=[rule])


class Journal(StepObserver):
    """Knows the answers and the begun calls of a run that was killed before a call had its result."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}

    def find(self, kind: str, request: Any) -> Any:
        return self.known.get(f"{kind} {json.dumps(request, sort_keys=True)}")

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        if kind in (APPROVAL, CALL_BEGUN):
            self.kept[f"{kind} {json.dumps(request, sort_keys=True)}"] = result


async def test_a_begun_call_is_known_again_however_it_is_written(actor: MakeActor, bank: Bank) -> None:
    calls = "lambda: pay(5), lambda: pay(to='Ann', number='5')"
    code = f"import os\nagain = os.path.exists('again')\nopen('again', 'w').close()\nprint([{calls}][again]())"
    journal = Journal()
    with observing(journal):
        assert await output_of(actor, bank, code) == "Ann got 5\n"
        journal.known = dict(journal.kept)
        assert "whether it was done is not known" in await output_of(actor, bank, code)
    assert len(bank.paid) == len(bank.asked) == 1


class Order(BaseModel):
    """Something that is new each time."""

    number: int
    id: UUID = Field(default_factory=uuid4)


@pytest.mark.parametrize("is_tool", [False, True])
async def test_what_is_new_each_time_is_asked_as_it_is_made_and_made_once(
    actor: MakeActor, bank: Bank, is_tool: bool
) -> None:
    """An id, or the time, that an argument has by default."""
    made: list[UUID] = []

    def order(what: Order) -> Writes:
        """Order something."""
        made.append(what.id)
        return "ordered"

    journal, seen = Journal(), []

    def decide(request: CallRequest) -> bool:
        seen.append(UUID(request.arguments["what"]["id"]))
        return True

    with observing(journal):
        for output in ("ordered\n", "whether it was done is not known"):
            code = "print(order({'number': 5}))"
            tool = FunctionTool(order, "Order.") if is_tool else order
            assert output in await output_of(actor, bank, code, tools=[tool], approval=decide)
            journal.known = dict(journal.kept)
    assert made == seen[:1]


async def test_a_misspelt_rule_is_an_error(actor: MakeActor, bank: Bank) -> None:
    rules = [CallRule(function=name, effect="forbidden") for name in ("pay", "payments", "pay_*", "looks")]
    agent = actor(Client("Well."), tools=bank.functions, call_approval=bank.decide, call_rules=rules)
    with pytest.raises(RequestError, match=r"for calls of looks\(\), which is none of the functions: look\(\) is"):
        await stream(agent, "Look.")


async def test_a_person_without_a_terminal_is_a_no(
    actor: MakeActor, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    output = await output_of(actor, bank, "pay(5)", approval=HumanApproval())
    assert "There is no terminal" in output
    assert bank.paid == []


async def test_always_in_a_branch_ends_with_the_branch(actor: MakeActor, bank: Bank) -> None:
    """The branch that goes on is the one whose code works; each asks for itself, one after the other."""
    asked: list[tuple[str, str]] = []

    async def decide(request: ApprovalRequest) -> ApprovalResponse:
        assert isinstance(request, CallRequest)
        if request.always:
            return ApprovalResponse(approved=True, reason="")
        asked.append((request.function, request.branch))
        assert not request.branch or f" by actor in branch {request.branch} that waits" in request.title
        return Always(reason="")

    loses, wins = python("pay(1)\npay(2)\n1 / 0"), python("await pay_later(3)\nawait pay_later(4)")
    last = python("await pay_later(5)\npay(6)")
    client = Client(python("1 / 0"), loses, wins, last, "Paid.")
    await turn(actor(client, tools=bank.functions, call_approval=decide, branches=2), "Pay.")
    assert sorted(map(str, bank.paid)) == ["(1, 'Ann')", "(2, 'Ann')", "(6, 'Ann')", "3", "4", "5"]
    functions, branches = map(set, zip(*asked[:2], strict=True))
    assert (functions, branches) == ({"pay", "pay_later"}, {"1.1", "1.2"})
    assert asked[2:] == [("pay", "")]

"""Measure tokens, requests and seconds for ten tasks with 5, 50 and 500 tools, beside AutoGen's agent and smolagents'.

python benchmarks/tools.py [--smolagents PYTHON] [--rounds N]

`--smolagents` is an interpreter with `smolagents[openai]`. All agents get the same functions, of which the tasks need
five, and ask the same scripted model over HTTP. It calls tools where it is offered tools, writes code where it is asked
for code, and searches for functions whose signatures it was not sent. A token is counted for four bytes of messages and
of tools' schemas. Every answer is checked. The seconds are the median of the rounds, in which all agents take turns;
they have the start of the agent, and the model answers at once.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

COUNTS = (5, 50, 500)
BYTES = 4
NEEDED = '''
CUSTOMERS = {
    f"C{number}": {"name": name, "country": country}
    for number, (name, country) in enumerate(
        zip(
            ["Ada", "Bob", "Cleo", "Dan", "Eve", "Finn"],
            ["Germany", "France", "Germany", "Italy", "France", "Germany"],
        )
    )
}


def list_customers(country: str) -> list:
    """The ids of all customers who live in a country.

    Args:
        country: The name of the country in English.
    """
    return [key for key, customer in CUSTOMERS.items() if customer["country"] == country]


def get_customer(customer_id: str) -> dict:
    """The name and the country of a customer.

    Args:
        customer_id: The id of the customer.
    """
    return CUSTOMERS[customer_id]


def list_invoices(customer_id: str) -> list:
    """The invoices of a customer: their amounts in euros, and whether they are paid.

    Args:
        customer_id: The id of the customer.
    """
    first = 100 * (1 + int(customer_id[1:]))
    return [{"amount": first, "paid": True}, {"amount": first + 50, "paid": False}, {"amount": 25, "paid": False}]


def convert_currency(amount: float, source: str, target: str) -> float:
    """Convert an amount of money from one currency to another.

    Args:
        amount: The amount.
        source: The currency of the amount, as EUR.
        target: The currency of the result, as USD.
    """
    return round(amount * 1.25, 2)


def send_message(recipient: str, text: str) -> str:
    """Send a text message to a person.

    Args:
        recipient: The name of the person.
        text: What to say.
    """
    return f"sent to {recipient}"
'''
OTHER = '''

def {kind}_{verb}_{thing}(workspace: str, {thing}_id: str, limit: int = 20) -> dict:
    """{verb_large} a {thing} in a workspace of {kind_large}, and return what {kind_large} says about it.

    Args:
        workspace: The name of the workspace in {kind_large}.
        {thing}_id: The id of the {thing}.
        limit: The most entries of the answer.
    """
    return {{"ok": True}}
'''
KINDS = (  # noqa: SIM905
    "jira github gitlab slack stripe salesforce hubspot zendesk notion airtable trello asana linear sentry datadog "
    "grafana jenkins docker kubernetes terraform shopify paypal mailchimp twilio dropbox box drive calendar outlook "
    "teams zoom figma intercom"
).split()
VERBS, THINGS = ("list", "update", "delete"), ("customer", "invoice", "message", "ticket", "report")

Calls = list[tuple[str, dict[str, Any]]]
Plan = Generator[Calls, list[Any], str]


@dataclass
class Task:
    """A task, and how a good model does it.

    Attributes:
        text: What the user says.
        answer: What must be in the answer.
        code: Code that sets `answer`.
        plan: The same as rounds of calls.
        wanted: What to search for, by the names of the functions that are needed.
    """

    text: str
    answer: str
    code: str
    plan: Callable[[], Plan]
    wanted: dict[str, str] = field(default_factory=dict)


def one_call(name: str, arguments: dict[str, Any], then: Callable[[Any], str]) -> Callable[[], Plan]:
    """A plan with one call."""

    def plan() -> Plan:
        [result] = yield [(name, arguments)]
        return then(result)

    return plan


def unpaid(invoices: list[dict[str, Any]]) -> int:
    """What is still to be paid."""
    return sum(each["amount"] for each in invoices if not each["paid"])


def of_each(name: str, ids: list[str]) -> Calls:
    """The same call for several customers."""
    return [(name, {"customer_id": each}) for each in ids]


def names_in_france() -> Plan:
    """Task 6 as calls."""
    [ids] = yield [("list_customers", {"country": "France"})]
    found = yield of_each("get_customer", ids)
    return ", ".join(each["name"] for each in found)


def unpaid_in_germany() -> Plan:
    """Task 7 as calls."""
    [ids] = yield [("list_customers", {"country": "Germany"})]
    found = yield of_each("list_invoices", ids)
    return str(sum(map(unpaid, found)))


def in_dollars() -> Plan:
    """Task 8 as calls."""
    [invoices] = yield of_each("list_invoices", ["C5"])
    total = sum(each["amount"] for each in invoices)
    [dollars] = yield [("convert_currency", {"amount": total, "source": "EUR", "target": "USD"})]
    return str(dollars)


def who_owes_most() -> Plan:
    """Task 9 as calls."""
    [ids] = yield [("list_customers", {"country": "Germany"})]
    found = yield of_each("list_invoices", ids)
    most = max(zip(ids, found, strict=True), key=lambda each: unpaid(each[1]))[0]
    [customer] = yield of_each("get_customer", [most])
    return str(customer["name"])


def remind_france() -> Plan:
    """Task 10 as calls."""
    [ids] = yield [("list_customers", {"country": "France"})]
    found = yield [*of_each("list_invoices", ids), *of_each("get_customer", ids)]
    half = len(ids)
    sent = yield [
        ("send_message", {"recipient": customer["name"], "text": f"Please pay {unpaid(invoices)} euros."})
        for invoices, customer in zip(found[:half], found[half:], strict=True)
    ]
    return ", ".join(sent)


CUSTOMERS, CUSTOMER = "customers who live in a country", "name of a customer"
INVOICES, MONEY, MESSAGE = "invoices of a customer", "convert money to another currency", "send a text message"
UNPAID = "sum(each['amount'] for each in list_invoices(customer_id={}) if not each['paid'])"
TASKS = [
    Task(
        "How many customers live in Germany?",
        "3",
        "answer = len(list_customers(country='Germany'))",
        one_call("list_customers", {"country": "Germany"}, lambda found: str(len(found))),
        {"list_customers": CUSTOMERS},
    ),
    Task(
        "What is the name of customer C4?",
        "Eve",
        "answer = get_customer(customer_id='C4')['name']",
        one_call("get_customer", {"customer_id": "C4"}, lambda found: str(found["name"])),
        {"get_customer": CUSTOMER},
    ),
    Task(
        "How much has customer C3 still to pay?",
        "475",
        f"answer = {UNPAID.format(repr('C3'))}",
        one_call("list_invoices", {"customer_id": "C3"}, lambda found: str(unpaid(found))),
        {"list_invoices": INVOICES},
    ),
    Task(
        "How many US dollars are 250 euros?",
        "312.5",
        "answer = convert_currency(amount=250, source='EUR', target='USD')",
        one_call("convert_currency", {"amount": 250, "source": "EUR", "target": "USD"}, str),
        {"convert_currency": MONEY},
    ),
    Task(
        "Wish Ada a good morning.",
        "sent to Ada",
        "answer = send_message(recipient='Ada', text='Good morning!')",
        one_call("send_message", {"recipient": "Ada", "text": "Good morning!"}, str),
        {"send_message": MESSAGE},
    ),
    Task(
        "What are the names of the customers in France?",
        "Bob, Eve",
        "answer = ', '.join(get_customer(customer_id=each)['name'] for each in list_customers(country='France'))",
        names_in_france,
        {"list_customers": CUSTOMERS, "get_customer": CUSTOMER},
    ),
    Task(
        "How much have all customers in Germany still to pay?",
        "1225",
        f"answer = sum({UNPAID.format('key')} for key in list_customers(country='Germany'))",
        unpaid_in_germany,
        {"list_customers": CUSTOMERS, "list_invoices": INVOICES},
    ),
    Task(
        "What is the total of all invoices of customer C5 in US dollars?",
        "1593.75",
        "total = sum(each['amount'] for each in list_invoices(customer_id='C5'))\n"
        "answer = convert_currency(amount=total, source='EUR', target='USD')",
        in_dollars,
        {"list_invoices": INVOICES, "convert_currency": MONEY},
    ),
    Task(
        "Which customer in Germany has most to pay?",
        "Finn",
        f"debts = {{key: {UNPAID.format('key')} for key in list_customers(country='Germany')}}\n"
        "answer = get_customer(customer_id=max(debts, key=debts.get))['name']",
        who_owes_most,
        {"list_customers": CUSTOMERS, "list_invoices": INVOICES, "get_customer": CUSTOMER},
    ),
    Task(
        "Remind each customer in France of what is still to be paid.",
        "sent to Bob, sent to Eve",
        "sent = []\n"
        "for key in list_customers(country='France'):\n"
        f"    text = f'Please pay {{{UNPAID.format('key').replace(chr(39), chr(34))}}} euros.'\n"
        "    sent.append(send_message(recipient=get_customer(customer_id=key)['name'], text=text))\n"
        "answer = ', '.join(sent)",
        remind_france,
        {"list_customers": CUSTOMERS, "list_invoices": INVOICES, "get_customer": CUSTOMER, "send_message": MESSAGE},
    ),
]


# --- The model ---


def text_in(content: Any) -> str:
    """The text of a message."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def answer_to(request: dict[str, Any], agent: str) -> dict[str, Any]:
    """The message with which the model answers a request."""
    messages = request["messages"]
    texts = [text_in(message.get("content")) for message in messages]
    task = next(task for task in TASKS if any(task.text in text for text in texts))
    if agent == "AssistantAgent":
        return call_tools(task, messages)
    everything = "\n".join(texts)
    if agent == "smolagents":  # It is given the best model: one that needs no look at the result.
        code = f"{task.code}\nfinal_answer(answer)"
        return {"role": "assistant", "content": f"Thought: I compute it.\n<code>\n{code}\n</code>"}
    if found := re.search(r"^The answer: (.+)$", texts[-1], re.MULTILINE):
        return {"role": "assistant", "content": f"It is: {found[1]}"}
    hidden = {name: query for name, query in task.wanted.items() if f"def {name}(" not in everything}
    if not hidden:
        code = f'{task.code}\nprint("The answer:", answer)'
    elif all(f"- {name}:" in everything for name in hidden):
        code = "\n".join(f"print(describe_tool({name!r}))" for name in hidden)
    elif "search_tools(" in "".join(texts[1:]):
        raise AssertionError(f"not found: {hidden}")
    else:
        code = "\n".join(f"print(search_tools({query!r}))" for query in hidden.values())
    return {"role": "assistant", "content": f"```python\n{code}\n```"}


def call_tools(task: Task, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The next calls, which depend on the results of the ones before."""
    results = [ast.literal_eval(quoted(text_in(each["content"]))) for each in messages if each["role"] == "tool"]
    plan = task.plan()
    calls = next(plan)
    try:
        while results:
            mine, results = results[: len(calls)], results[len(calls) :]
            calls = plan.send(mine)
    except StopIteration as end:
        return {"role": "assistant", "content": f"It is: {end.value}"}
    made = [
        {
            "id": f"call_{number}_{len(messages)}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def quoted(result: str) -> str:
    """The text of a result as a literal of Python."""
    try:
        ast.literal_eval(result)
    except (ValueError, SyntaxError):
        return repr(result)
    return result


class Server:
    """Answers requests, and counts them and their tokens by the first part of their path."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.tokens: dict[str, int] = {}
        counted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                key = self.path.split("/")[1]
                sent = "".join(text_in(message.get("content")) for message in request["messages"])
                sent += "".join(
                    json.dumps(message["tool_calls"]) for message in request["messages"] if message.get("tool_calls")
                )
                sent += json.dumps(request["tools"]) if request.get("tools") else ""
                prompt = len(sent.encode()) // BYTES
                counted.requests[key] += 1
                counted.tokens[key] += prompt
                message = answer_to(request, key.partition("-")[0])
                usage = {"prompt_tokens": prompt, "completion_tokens": 1, "total_tokens": prompt + 1}
                reason = "tool_calls" if message.get("tool_calls") else "stop"
                choice = {"index": 0, "message": message, "finish_reason": reason}
                reply = {
                    "id": "1",
                    "object": "chat.completion",
                    "created": 0,
                    "model": request["model"],
                    "choices": [choice],
                    "usage": usage,
                }
                body = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


# --- The agents, each in a process of its own ---


def write_tools(file: Path, count: int) -> None:
    """A module with so many functions."""
    others = itertools.islice(itertools.product(VERBS, THINGS, KINDS), count - len(COUNTS) - 2)
    texts = [
        OTHER.format(kind=kind, verb=verb, thing=thing, kind_large=kind.capitalize(), verb_large=verb.capitalize())
        for verb, thing, kind in others
    ]
    file.write_text(NEEDED + "".join(texts), encoding="utf-8")


def read_tools(file: Path) -> list[Callable[..., Any]]:
    """Its functions."""
    spec = importlib.util.spec_from_file_location("tools_of_benchmark", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return [value for value in vars(module).values() if callable(value)]


async def ask_autogen(agent_name: str, url: str, tools: Sequence[Callable[..., Any]]) -> Sequence[str]:
    """The answers of an agent of CodeRoom or AutoGen."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import CancellationToken
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    from coderoom.agents import CodeActAgent

    client = OpenAIChatCompletionClient(model="gpt-4o-2024-08-06", api_key="test", base_url=url)
    if agent_name == "AssistantAgent":
        agent: Any = AssistantAgent("agent", client, tools=list(tools), max_tool_iterations=10)
    else:
        mode: Any = agent_name.partition("_")[2] or "auto"
        agent = CodeActAgent("agent", client, tools=tools, tools_in_prompt=mode)
    answers = []
    for task in TASKS:
        answers.append(str((await agent.run(task=task.text)).messages[-1].to_text()))
        await agent.on_reset(CancellationToken())
    if agent_name != "AssistantAgent":
        await agent.close()
    await client.close()
    return answers


def ask_smolagents(url: str, tools: Sequence[Callable[..., Any]]) -> Sequence[str]:
    """The answers of smolagents' agent."""
    from smolagents import CodeAgent, LogLevel, OpenAIServerModel, tool

    model = OpenAIServerModel("gpt-4o-2024-08-06", api_base=url, api_key="test")
    agent = CodeAgent(tools=[tool(each) for each in tools], model=model, verbosity_level=LogLevel.OFF)
    return [str(agent.run(task.text)) for task in TASKS]


def take_part(agent: str, url: str, file: Path) -> None:
    """Do all tasks with an agent, and print how long it took."""
    tools = read_tools(file)
    if agent == "smolagents":
        import smolagents  # noqa: F401 (not measured)
    else:
        import autogen_ext.models.openai  # noqa: F401 (not measured)

        import coderoom.agents.code_act  # noqa: F401 (not measured)
    begin = time.perf_counter()
    answers = ask_smolagents(url, tools) if agent == "smolagents" else asyncio.run(ask_autogen(agent, url, tools))
    seconds = time.perf_counter() - begin
    for task, answer in zip(TASKS, answers, strict=True):
        assert task.answer in answer, (task.text, answer)
    print(seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smolagents", metavar="PYTHON", help="an interpreter that has smolagents")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        agent, url, file = arguments.part
        take_part(agent, url, Path(file))
        return
    agents = {
        "CodeActAgent_auto": "`CodeActAgent`",
        "CodeActAgent_all": '`CodeActAgent`, `tools_in_prompt="all"`',
        "AssistantAgent": "AutoGen's `AssistantAgent`",
        **({"smolagents": "smolagents' `CodeAgent`"} if arguments.smolagents else {}),
    }
    server, seconds = Server(), defaultdict[str, list[float]](list)
    with tempfile.TemporaryDirectory() as folder:
        for _, count, agent in itertools.product(range(arguments.rounds), COUNTS, agents):
            write_tools(file := Path(folder, f"tools_{count}.py"), count)
            python = arguments.smolagents if agent == "smolagents" else sys.executable
            key = f"{agent}-{count}"
            server.requests[key] = server.tokens[key] = 0  # They are the same in each round.
            command = [python, __file__, "--part", agent, f"{server.url}/{key}/v1", str(file)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            seconds[key].append(float(done.stdout.splitlines()[-1]))
    print(f"| ten tasks | {' | '.join(f'{count} tools' for count in COUNTS)} |")
    print(f"|---|{'---|' * len(COUNTS)}")
    for agent, words in agents.items():
        keys = [f"{agent}-{count}" for count in COUNTS]
        cells = [
            f"{server.tokens[key]:,} tokens, {server.requests[key]} requests, {median(seconds[key]):.1f} s"
            for key in keys
        ]
        print(f"| {words} | {' | '.join(cells)} |")
    shown, whole = server.tokens[f"CodeActAgent_auto-{COUNTS[-1]}"], server.tokens[f"CodeActAgent_all-{COUNTS[-1]}"]
    print(f"\nWith {COUNTS[-1]} tools, input tokens are {shown / whole:.1%} of those with all signatures.")


if __name__ == "__main__":
    main()

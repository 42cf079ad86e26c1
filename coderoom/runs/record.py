"""The record of a run, as computed facts, and how it gets those that AutoGen's agents do not report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_core.code_executor import CodeResult
from autogen_core.models import RequestUsage

from coderoom import generation
from coderoom._util.autogen import (
    agents_of,
    clients_of,
    current_agent,
    executor_of,
    is_at_its_limit,
    text_mentioned,
    workbenches_of,
)
from coderoom.agents import CodeActAgent, CodeExecutorAgent, HumanApprovedAgent, StopReason
from coderoom.agents import metadata as keys
from coderoom.blocks import extract_code_blocks, without_thoughts
from coderoom.errors import BudgetExceeded
from coderoom.models.prices import cost_of
from coderoom.models.services import is_transient
from coderoom.models.watching import watch_client
from coderoom.outcome import Outcome
from coderoom.runs.branches import BranchCosts, Branches
from coderoom.runs.review import Reviewed
from coderoom.runs.shown import run_html
from coderoom.sandbox import NetworkUse
from coderoom.sandbox.result import network_sum
from coderoom.steps import CODE, MODEL, StepObserver, branch
from coderoom.steps.watching import watch_context, watch_executor, watch_questions, watch_tools

NO_CODE = "no_code"
"""The outcome of a run without code, so that nothing shows whether it worked."""
NOT_APPROVED = "not_approved"
"""The outcome of a run whose code succeeded, but whose reviewer did not approve it."""
UNFINISHED = "unfinished"
"""The outcome of a run that ended at a limit before there was an answer."""
FAILED = "failed"
"""The outcome of a run that ended with the failure of an agent or a model."""
OUTCOMES = (*Outcome, NO_CODE, NOT_APPROVED, UNFINISHED, FAILED)
"""All outcomes of runs of teams."""

_AT_A_LIMIT = frozenset({StopReason.MAX_STEPS, StopReason.MAX_TOKENS, StopReason.MAX_SECONDS, StopReason.SAME_RESULT})

_FACTS = (
    "run", "team", "task", "model", "isolation", "outcome", "succeeded", "approved", "answer", "output", "stop_reason",
    "agent_stop_reason", "error", "notices", "turns", "attempts", "limit", "models", "usage", "usage_by_agent",
)  # fmt: skip
"""What is in a record's JSON as it is."""


def usage_of(used: Iterable[RequestUsage]) -> dict[str, int]:
    """The sum of token usages, as plain data."""
    counts = [(each.prompt_tokens, each.completion_tokens) for each in used]
    prompt, completion = sum(count for count, _ in counts), sum(count for _, count in counts)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


_NONE: Final = usage_of(())


def _total(usage: Mapping[str, int]) -> int:
    return usage["total_tokens"]


@dataclass
class RunRecord:
    """The record of a run. Every fact is computed from the messages and the files; none is a model's claim.

    Attributes:
        team: The team's file or name.
        task: The task.
        model: The model that replaced those of the team's file, or `None`.
        run: The id of the run in the journal; `None` if it is not kept.
        models: The name of each agent's model.
        priced_as: The same for the table of prices.
        without_messages: The token usage of requests that no message shows, such as those of a selector.
        isolation: The wall that the code ran behind.
        messages: All messages and events, in order, without streaming chunks.
        stop_reason: Why the team stopped.
        seconds: How long it took.
        files: The files that the code wrote or changed.
        error: Why the run failed, in words.
        exception: The exception behind `error`.
        cancelled: Whether it was interrupted.
        reached: The limit that ended it; `None` if none did.
        cause: What the last step has raised; `None` if it has not failed.
        runs_code: Whether the team has an agent that runs code.
        has_reviewer: Whether the team has a reviewer.
        notices: What the user should know about the preparation.
        asks: The agents that may ask a person about their code.
        network: The hosts that the code asked for, if it has a list of hosts that it may reach.
        lock: The packages of its code as a requirements file with exact versions.
        reviewed: What became of changes that were kept apart from the workspace; `None` if there are none.
        branch_costs: What branches that have not ended have cost.
        activity: What the team does at the moment; empty if that is not known.
        since: When that began, as a time of `time.monotonic`.
    """

    team: str
    task: str
    model: str | None = None
    run: str | None = None
    models: dict[str, str] = field(default_factory=dict)
    priced_as: dict[str, str] = field(default_factory=dict)
    without_messages: dict[str, list[RequestUsage]] = field(default_factory=dict)
    isolation: str = ""
    messages: list[BaseAgentEvent | BaseChatMessage] = field(default_factory=list)
    stop_reason: str | None = None
    seconds: float = 0.0
    files: list[Path] = field(default_factory=list)
    error: str | None = None
    exception: Exception | None = None
    cancelled: bool = False
    reached: BudgetExceeded | None = None
    cause: BaseException | None = None
    runs_code: bool = True
    has_reviewer: bool = False
    notices: list[str] = field(default_factory=list)
    asks: frozenset[str] = frozenset()
    network: Sequence[NetworkUse] = ()
    lock: str = ""
    reviewed: Reviewed | None = None
    branch_costs: BranchCosts = field(default_factory=BranchCosts)
    activity: str = ""
    since: float = field(default_factory=monotonic)
    _runs: int = 0  # Of code, by agents that do not report them,
    _output: str = ""
    _results: dict[str, CodeResult] = field(default_factory=dict)  # whose outcomes belong to their next messages.
    _outputs: dict[str, str] = field(default_factory=dict)  # Of branches that have not ended.
    _seen: dict[str, list[RequestUsage]] = field(default_factory=dict)  # Of all requests, as they end.

    def add(self, message: BaseAgentEvent | BaseChatMessage) -> BaseAgentEvent | BaseChatMessage:
        """Record a message; return it, with what its agent does not know: an outcome of code, or what branches cost."""
        if isinstance(message, ModelClientStreamingChunkEvent):
            return message
        if isinstance(message, BaseChatMessage) and (result := self._results.pop(message.source, None)) is not None:
            outcome = Outcome.OK if result.exit_code == 0 else Outcome.ERROR
            facts = {keys.OUTCOME: outcome.value, keys.EXIT_CODE: str(result.exit_code)}
            message = message.model_copy(update={"metadata": message.metadata | facts})
            self._output = result.output
        elif isinstance(message, CodeExecutionEvent):
            if in_branch := message.metadata.get(keys.BRANCH):
                self._outputs[in_branch] = message.result.output
            else:
                self._output = message.result.output
        elif message.metadata.get(keys.EVENT) == keys.BRANCHING:  # The output is that of the branch that goes on.
            told = Branches.model_validate_json(message.metadata[keys.BRANCHES])
            self._output = self._outputs.get(told.won or "", self._output)
            self._outputs.clear()
            priced = {keys.BRANCHES: told.priced(self.branch_costs, message.source).model_dump_json()}
            message = message.model_copy(update={"metadata": message.metadata | priced})
        self.messages.append(message)
        if isinstance(message, ToolCallRequestEvent):
            self.begin(message.source, "calls tools")
        elif isinstance(message, BaseChatMessage) and self.activity.startswith(f"{message.source} "):
            self.activity = ""  # Its turn has ended. The task may come after an agent has begun.
        return message

    def begin(self, agent: str, activity: str) -> None:
        """An agent begins something."""
        self.activity, self.since = f"{agent} {activity}", monotonic()

    @property
    def limit(self) -> str:
        """The limit of the run that ended it, in words; empty if none did."""
        return "" if self.reached is None else str(self.reached)

    @property
    def may_pass(self) -> bool:
        """Whether it failed for a reason of a model service that may pass by itself."""
        return self.error is not None and self.cause is not None and is_transient(self.cause)

    @property
    def outcome(self) -> str:
        """How the run ended: the last attempt's `Outcome`, unless something else takes precedence."""
        if self.cancelled:
            return Outcome.CANCELLED.value
        if self.error is not None:
            return FAILED
        if self.limit:
            return UNFINISHED
        last = self._last_with(keys.OUTCOME)
        if last is None:
            return NO_CODE if self.runs_code else Outcome.OK.value
        outcome = keys.read_outcome(last.metadata) or Outcome.ERROR
        if outcome is Outcome.OK and last.metadata.get(keys.STOP_REASON) in _AT_A_LIMIT:
            return UNFINISHED
        if outcome is Outcome.OK and self.approved is False:
            return NOT_APPROVED
        if outcome is Outcome.OK and self._lacks_review:
            return UNFINISHED
        return outcome.value

    @property
    def succeeded(self) -> bool:
        """Whether it worked."""
        return self.outcome == Outcome.OK.value

    @property
    def approved(self) -> bool | None:
        """The last verdict, or `None` if there was no review."""
        last = self._last_with(keys.APPROVED)
        return None if last is None else last.metadata[keys.APPROVED] == "true"

    @property
    def _lacks_review(self) -> bool:
        """Whether AutoGen's limit of turns or messages came before the reviewer."""
        return is_at_its_limit(self.stop_reason) and self.has_reviewer and self.approved is None

    @property
    def agent_stop_reason(self) -> str | None:
        """Why the last agent that may run code ended its turn."""
        last = self._last_with(keys.STOP_REASON)
        return None if last is None else last.metadata[keys.STOP_REASON]

    @property
    def why_unfinished(self) -> str:
        """The limit that the run or its agent reached before there was an answer, in words; empty if there was none."""
        if self.limit:
            return self.limit
        reason = self.agent_stop_reason
        if self.outcome != UNFINISHED:
            return ""
        if reason not in _AT_A_LIMIT and self._lacks_review:
            return f"{self.stop_reason} The reviewer has not spoken."
        return StopReason(reason).why_without_answer if reason else ""

    @property
    def why_failed(self) -> str:
        """Why the last agent that ran code made no further attempt, in words; empty if its code did not fail."""
        return why_failed(self.outcome, self.agent_stop_reason)

    @property
    def answer(self) -> str:
        """What was said last, after the code ran, or else the output of the code; empty if the run failed."""
        return self.last_words if self.outcome in {Outcome.OK, NO_CODE, NOT_APPROVED, UNFINISHED} else ""

    @property
    def last_words(self) -> str:
        """As `answer`, and also of a run that failed."""
        last, chat = self._last_with(keys.OUTCOME), self._chat
        after = chat[chat.index(last) + 1 :] if last is not None else chat
        if isinstance(last, HandoffMessage) and not any(map(self._answer_in, after)):
            after = chat
        words = next(filter(None, map(self._answer_in, reversed(after))), "")
        if words or last is None:
            return words
        summary = last.metadata.get(keys.SUMMARY, "")
        return without_thoughts(summary).strip() or summary or last.to_model_text()

    @property
    def end_in_words(self) -> str:
        """What was said last, and the outcome with its reason: for programs that get a text."""
        why = self.error or self.limit
        return f"{self.last_words}\n\n[outcome: {self.outcome}{f': {why}' if why else ''}]".lstrip()

    @property
    def output(self) -> str:
        """What the last code that ran has printed."""
        return self._output

    def _answer_in(self, message: BaseChatMessage) -> str:
        """What a message says as an answer: no verdict, no hand-over, no word of a person, no code or lack of it."""
        people = {each.source for each in self.messages if isinstance(each, UserInputRequestedEvent)} | {"user"}
        if message.source in people or keys.APPROVED in message.metadata:
            return ""
        ran = self._last_with(keys.OUTCOME) is not None
        if ran and (isinstance(message, HandoffMessage) or keys.OUTCOME in message.metadata):
            return ""
        text = message.to_model_text()
        if text.startswith(CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE):  # AutoGen's and ours say the same.
            return ""
        text = without_thoughts(text).strip() or text
        if ran and any(
            block.language and not block.is_data and not block.no_run for block in extract_code_blocks(text)
        ):
            return ""
        # The word that ends the team is for the team.
        ending = text_mentioned(self.stop_reason)
        return text.strip().removesuffix(ending).rstrip() if ending else text

    @property
    def turns(self) -> int:
        """The number of turns."""
        return sum(message.source != "user" for message in self._chat)

    @property
    def attempts(self) -> int:
        """The number of times that code ran."""
        events = [m for m in self.messages if isinstance(m, CodeExecutionEvent) and keys.OUTCOME in m.metadata]
        return self._runs + sum(event.metadata.get(keys.RAN) != "false" for event in events)

    @property
    def usage(self) -> dict[str, int]:
        """Token usage of the models."""
        return usage_of(each for used in self._used.values() for each in used)

    @property
    def usage_by_agent(self) -> dict[str, dict[str, int]]:
        """Token usage of each agent that used a model."""
        return {agent: usage_of(each) for agent, each in self._used.items()}

    @property
    def _used(self) -> dict[str, list[RequestUsage]]:
        used = {name: list(each) for name, each in self.without_messages.items()}
        for message in self.messages:
            if message.models_usage is not None:
                used.setdefault(message.source, []).append(message.models_usage)
        return used

    @property
    def usage_so_far(self) -> dict[str, dict[str, int]]:
        """The same while the run goes on: with requests whose messages have not come yet, or never did."""
        told, seen = self.usage_by_agent, {agent: usage_of(each) for agent, each in self._seen.items()}
        counted = (max(told.get(agent, _NONE), seen.get(agent, _NONE), key=_total) for agent in {**told, **seen})
        return dict(zip({**told, **seen}, counted, strict=True))

    @property
    def cost_by_agent(self) -> dict[str, float | None]:
        """The list price of each agent's tokens in US dollars; `None` if the price of its model is not known."""
        return self._costs(self.usage_by_agent)

    @property
    def cost_so_far(self) -> dict[str, float | None]:
        """The same of `usage_so_far`."""
        return self._costs(self.usage_so_far)

    def _costs(self, usage: Mapping[str, Mapping[str, int]]) -> dict[str, float | None]:
        return {
            agent: cost_of(self.priced_as.get(agent, ""), used["prompt_tokens"], used["completion_tokens"])
            for agent, used in usage.items()
            if used["total_tokens"]
        }

    @property
    def cost(self) -> float | None:
        """The list price of all tokens in US dollars, or `None` if the price of a model is not known."""
        costs = self.cost_by_agent.values()
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known and len(known) == len(costs) else None

    @property
    def _chat(self) -> Sequence[BaseChatMessage]:
        chat = (message for message in self.messages if isinstance(message, BaseChatMessage))
        return [message for message in chat if keys.SHOWN not in message.metadata]

    def _last_with(self, key: str) -> BaseChatMessage | None:
        return next((message for message in reversed(self._chat) if key in message.metadata), None)

    def to_json(self) -> dict[str, Any]:
        """The facts and all messages, as plain data."""
        return {**self.facts(), "messages": [message.model_dump(mode="json") for message in self.messages]}

    def _repr_html_(self) -> str:
        return run_html(self.task, self.outcome, self.team, self.facts())

    def facts(self) -> dict[str, Any]:
        """The facts, as plain data."""
        return {
            **{name: getattr(self, name) for name in _FACTS},
            "limit_owner": self.reached.owner if self.reached else "",
            "limit_name": self.reached.limit if self.reached else "",
            "cost_usd": self.cost,
            "cost_usd_by_agent": self.cost_by_agent,
            "seconds": round(self.seconds, 3),
            "files": [str(path) for path in self.files],
            **({"review": self.reviewed.to_json()} if self.reviewed else {}),
            "network": [asdict(use) for use in self.network],
            **({"lock": self.lock} if self.lock else {}),
        }


def network_in(result: Mapping[str, Any]) -> tuple[NetworkUse, ...]:
    """The hosts that code asked for, of the result of a step, or of the facts of a run."""
    return tuple(NetworkUse(**use) for use in result.get("network") or ())


def network_words(uses: Sequence[NetworkUse]) -> str:
    """The hosts in a line; empty if there are none."""
    parts = []
    for words, found in (
        ("reached", [use.place for use in uses if not use.why]),
        ("not reached", [use.place for use in uses if use.why and use.host]),
    ):
        places = list(dict.fromkeys(found))
        more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
        parts += [f"{words}: {', '.join(places[:_MOST_PLACES])}{more}"] if places else []
    return "; ".join(parts)


def output_beside(answer: str, output: str) -> str:
    """What code has printed, to be shown beside an answer; empty without an answer, or if the answer contains it."""
    contains = f"\n{output.strip()}\n" in f"\n{answer.strip()}\n"
    return output if answer and output.strip() and not contains else ""


_MOST_PLACES: Final = 10
_ACTIVITIES: Final = {MODEL: "waits for the model", CODE: "runs code", "input": "waits for a person"}
_CUT: Final = {
    "length": "A reply of the model of {} was cut off at its token limit (max_tokens), so that code or words are "
    "missing. Raise max_tokens in the model's config or at its server, or ask for less at a time.",
    "content_filter": "A content filter of the service ended a reply of the model of {}: rephrase the task.",
}


class RunFacts(StepObserver):
    """Notes what no message shows.

    That is what an agent does now, tokens of requests of a selector, replies cut short, and the code of agents that do
    not report it.

    Args:
        record: The record of the run.
        watch: Gets what such code writes while it runs.
    """

    def __init__(self, record: RunRecord, watch: Callable[[ModelClientStreamingChunkEvent], None]) -> None:
        self._record = record
        self._watch = watch

    def before(self, kind: str, request: Any) -> None:
        """Note what the agent does now."""
        if kind in _ACTIVITIES and (agent := current_agent()):
            self._record.begin(agent, _ACTIVITIES[kind])

    def fail(self, kind: str, request: Any, error: BaseException, seconds: float) -> None:
        """Note what a step has raised: AutoGen's teams make a text of it."""
        self._record.cause = error

    def tell(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Note that a limit was reached."""
        if kind == "limit":
            self._record.cause = BudgetExceeded(facts["words"], facts["owner"], facts["limit"])

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Note a request to a model, or a run of code."""
        name = current_agent()
        if kind == CODE and "outcome" not in result:
            self._record._runs += 1
            self._record._results[name] = CodeResult(result["exit_code"], result["output"])
        if kind == CODE and result.get("network"):
            self._record.network = network_sum([*self._record.network, *network_in(result)])
        self._record.cause = None
        if kind != MODEL:
            return
        if name:
            self._record._seen.setdefault(name, []).append(RequestUsage(**result["usage"]))
        if in_branch := branch.get():
            self._record.branch_costs.add(name, in_branch, request.get("priced_as", ""), result["usage"])
        if cut := _CUT.get(result.get("finish_reason", ""), "").format(name or "the team"):
            self._record.notices += [cut] if cut not in self._record.notices else []
        if name and name not in self._record.models and not result.get("cached"):
            self._record.without_messages.setdefault(name, []).append(RequestUsage(**result["usage"]))
            self._record.priced_as.setdefault(name, request.get("priced_as", ""))

    def write(self, agent: str, text: str) -> None:
        """Show what code writes."""
        self._watch(ModelClientStreamingChunkEvent(content=text, source=agent, metadata={keys.EVENT: keys.OUTPUT}))


@contextmanager
def watching(team: Any) -> Iterator[None]:
    """Make all that the parts of a team do steps of its run, until the end of this context.

    That is requests and calls of tools, and code and questions of agents of AutoGen; ours report their own. AutoGen's
    `AssistantAgent`s get what a person says meanwhile.
    """
    with ExitStack() as stack:
        for client in clients_of(team):
            stack.callback(watch_client(client))
        for workbench in workbenches_of(team):
            stack.callback(watch_tools(workbench))
        for agent in agents_of(team, hidden=True):
            executor = executor_of(agent)
            if executor is not None and not isinstance(agent, CodeExecutorAgent | CodeActAgent | HumanApprovedAgent):
                stack.callback(watch_executor(executor))
            if isinstance(agent, UserProxyAgent) and not isinstance(agent, HumanApprovedAgent):
                stack.callback(watch_questions(agent))
            if isinstance(agent, AssistantAgent):
                stack.callback(watch_context(agent.model_context))
        yield


def why_failed(outcome: str | None, reason: str | None) -> str:
    """Why an agent whose code has ended with an outcome made no further attempt, in words; empty if it did not fail."""
    if outcome not in {Outcome.ERROR, Outcome.TIMEOUT, Outcome.MEMORY, Outcome.REJECTED} or reason is None:
        return ""
    reasons = [*StopReason, *generation.StopReason]  # A `CodeGeneratorAgent` has reasons of its own.
    return next((each.words for each in reasons if each == reason), reason)

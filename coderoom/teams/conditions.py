"""Termination conditions, most of which read metadata and not text, and the saved state of any condition."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autogen_agentchat.base import TerminatedException, TerminationCondition
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, CodeExecutionEvent, StopMessage
from autogen_core import Component
from pydantic import Field

from coderoom._util.autogen import CONDITIONS, COUNTERS, STOP_MESSAGES
from coderoom._util.components import ArgumentsConfig, StrictConfig
from coderoom.agents import metadata as keys
from coderoom.errors import BudgetExceeded, RequestError
from coderoom.models.budgets import Budget, Spending
from coderoom.outcome import Outcome
from coderoom.steps import CODE, MODEL


class StatefulCondition(TerminationCondition):
    """A termination condition whose state is saved with its team's.

    A subclass implements `_stop_reason` and keeps its counters in `_state`.
    """

    def __init__(self) -> None:
        self._terminated = False
        self._state: dict[str, Any] = {}

    @property
    def terminated(self) -> bool:
        """Whether it has been met."""
        return self._terminated

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        """Look at new messages.

        Raises:
            TerminatedException: The condition was met before and not reset.
        """
        if self._terminated:
            raise TerminatedException("Termination condition has already been reached")
        for message in messages:
            reason = self._stop_reason(message)
            if reason is not None:
                self._terminated = True
                return StopMessage(content=reason, source=type(self).__name__)
        return None

    @abstractmethod
    def _stop_reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        """Why `message` ends the run, or `None` if it does not.

        It is called with each event and message of a turn in order, but only when the turn has ended. The last message
        of a turn repeats the facts of its last attempt.
        """

    async def reset(self) -> None:
        """Reset the counters."""
        self._terminated = False
        self._state.clear()

    def save_state(self) -> dict[str, Any]:
        """The counters, as JSON-like data."""
        return {"terminated": self._terminated, "state": dict(self._state)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned."""
        self._terminated = bool(state.get("terminated", False))
        self._state = dict(state.get("state", {}))


class SourcesConfig(StrictConfig):
    """The config of a condition that may look at some participants only."""

    sources: list[str] | None = None
    """The participants to look at; missing: all."""


class ConditionFromSources(ArgumentsConfig, StatefulCondition):
    """A condition that may look at some participants only."""

    component_config_schema: type[SourcesConfig] = SourcesConfig

    def __init__(self, sources: Sequence[str] | None = None) -> None:
        super().__init__()
        if isinstance(sources, str):
            raise ValueError(f"sources must be a list of names, not the one name {sources!r}.")
        self._sources = None if sources is None else list(sources)

    def is_from_sources(self, message: BaseAgentEvent | BaseChatMessage) -> bool:
        """Whether a message is from one of the participants to look at."""
        return isinstance(message, BaseChatMessage) and (self._sources is None or message.source in self._sources)


class ReviewApproved(ConditionFromSources, Component[SourcesConfig]):
    """Ends the run when the verdict of a `ReviewerAgent` approves. Text does not count.

    Args:
        sources: The names of the reviewers; all by default.
    """

    component_provider_override = "coderoom.teams.ReviewApproved"

    def _stop_reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        if self.is_from_sources(message) and message.metadata.get(keys.APPROVED) == "true":
            return f"{message.source} approved."
        return None


class CodeSucceeded(ConditionFromSources, Component[SourcesConfig]):
    """Ends the run when an agent's turn ends with code whose outcome is `ok`.

    Args:
        sources: The names of the agents; all by default.
    """

    component_provider_override = "coderoom.teams.CodeSucceeded"

    def _stop_reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        if self.is_from_sources(message) and keys.read_outcome(message.metadata) is Outcome.OK:
            return f"The code of {message.source} ran and ended with exit code 0."
        return None


class TextMentionConfig(SourcesConfig):
    """The config of `TextMentionTermination`."""

    text: str


class TextMentionTermination(ConditionFromSources, Component[TextMentionConfig]):
    """Ends the run at a message or event with a text. The config of AutoGen's condition of this name has no `sources`.

    Args:
        text: The text.
        sources: The names of the participants to look at; all by default, and the user.
    """

    component_config_schema = TextMentionConfig
    component_provider_override = "coderoom.teams.TextMentionTermination"

    def __init__(self, text: str, sources: Sequence[str] | None = None) -> None:
        super().__init__(sources)
        self._text = text

    def _stop_reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        is_looked_at = self._sources is None or message.source in self._sources
        return f"Text '{self._text}' mentioned" if is_looked_at and self._text in message.to_text() else None


class NoProgressConfig(StrictConfig):
    """The config of `NoProgress`."""

    repeats: int = Field(default=2, ge=2)


class NoProgress(ArgumentsConfig, StatefulCondition, Component[NoProgressConfig]):
    """Ends the run when the team repeats itself.

    That is: the same code fails in the same way, or a participant sends the same text, `repeats` times in a row.

    Args:
        repeats: The number of repetitions, 2 or more.

    Raises:
        ValueError: `repeats` is below 2.
    """

    component_config_schema = NoProgressConfig
    component_provider_override = "coderoom.teams.NoProgress"

    def __init__(self, repeats: int = 2) -> None:
        if repeats < 2:
            raise ValueError(f"repeats must be 2 or more, not {repeats}.")
        super().__init__()
        self._repeats = repeats

    def _stop_reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        if not isinstance(message, BaseChatMessage):
            return None
        if keys.OUTCOME in message.metadata:
            # Code may print the same twice; only the same failure counts.
            self._state.pop(f"{message.source} says", None)
            if self._times_in_a_row(f"{message.source} fails", message.metadata.get(keys.FAILURE, "")) >= self._repeats:
                return f"No progress: the same code failed in the same way {self._repeats} times."
        elif self._times_in_a_row(f"{message.source} says", message.to_model_text()) >= self._repeats:
            return f"No progress: {message.source} said the same thing {self._repeats} times."
        return None

    def _times_in_a_row(self, what: str, value: str) -> int:
        before, times = self._state.get(what, ("", 0))
        times = 0 if not value else times + 1 if value == before else 1
        self._state[what] = [value, times]
        return int(times)


class BudgetTermination(ArgumentsConfig, StatefulCondition, Component[Budget]):
    """Ends the run when a budget is used up.

    In runs of CodeRoom (`coderoom run`, `chat`, `coderoom.runs`) the budget is checked before each request to a model
    and each run of code, those inside a turn too. In other runs, as in AutoGen Studio, only the messages show what was
    used, so that it is checked at the end of each turn.

    Args:
        tokens: Tokens of prompts and completions.
        cost_usd: US dollars; only in runs of CodeRoom.
        model_calls: Requests to models.
        cells: Runs of code.
        seconds: Seconds since the beginning of the run.

    Raises:
        pydantic.ValidationError: There is no limit, or one is not positive.
        RequestError: `cost_usd` is set, and the run is not one of CodeRoom: a message does not tell its model.
    """

    component_config_schema = Budget
    component_provider_override = "coderoom.teams.BudgetTermination"

    def __init__(
        self,
        tokens: int | None = None,
        cost_usd: float | None = None,
        model_calls: int | None = None,
        cells: int | None = None,
        seconds: float | None = None,
    ) -> None:
        super().__init__()
        self.budget = Budget(tokens=tokens, cost_usd=cost_usd, model_calls=model_calls, cells=cells, seconds=seconds)
        self.is_checked = False
        """Whether the run checks the budget itself."""
        self.spending = Spending(self.budget, "the team")

    def _to_config(self) -> Budget:
        return self.budget

    def _stop_reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        if self.is_checked:
            return None
        if self.budget.cost_usd is not None:
            raise RequestError(
                "BudgetTermination(cost_usd=...) works in runs of CodeRoom only, since AutoGen's messages do not tell "
                "their model. Use tokens=..., or `coderoom run`."
            )
        self.spending.used = self._state.setdefault("used", self.spending.used)
        if message.models_usage is not None:
            self.spending.add(MODEL, usage=message.models_usage)
        if isinstance(message, CodeExecutionEvent) and message.metadata.get(keys.RAN) != "false":
            self.spending.add(CODE)
        try:
            self.spending.check(MODEL)
            self.spending.check(CODE)
        except BudgetExceeded as error:
            return str(error)
        return None

    async def reset(self) -> None:
        """Begin to count anew."""
        await super().reset()
        self.spending.reset()


def conditions_of(condition: TerminationCondition | None) -> Iterator[TerminationCondition]:
    """A condition and all that it combines."""
    if condition is not None:
        yield condition
        for child in _children(condition):
            yield from conditions_of(child)


def save_condition_state(condition: TerminationCondition) -> dict[str, Any]:
    """The counters of a condition, and of all that it combines, as JSON-like data."""
    state: dict[str, Any] = {"condition": type(condition).__name__}
    if isinstance(condition, StatefulCondition):
        state["own"] = condition.save_state()
        return state
    state["counters"] = {name: getattr(condition, name) for name in COUNTERS if hasattr(condition, name)}
    children = _children(condition)
    if children:
        state["conditions"] = [save_condition_state(child) for child in children]
        state["stop_messages"] = [message.dump() for message in getattr(condition, STOP_MESSAGES, [])]
    return state


def load_condition_state(condition: TerminationCondition, state: Mapping[str, Any]) -> None:
    """Restore what `save_condition_state` returned. The state of another kind of condition is ignored."""
    if state.get("condition") != type(condition).__name__:
        return
    if isinstance(condition, StatefulCondition):
        condition.load_state(state.get("own", {}))
        return
    for name, value in state.get("counters", {}).items():
        if name in COUNTERS and hasattr(condition, name):
            setattr(condition, name, value)
    for child, child_state in zip(_children(condition), state.get("conditions", ()), strict=False):
        load_condition_state(child, child_state)
    if hasattr(condition, STOP_MESSAGES):
        setattr(condition, STOP_MESSAGES, [StopMessage.load(data) for data in state.get("stop_messages", ())])


def _children(condition: TerminationCondition) -> list[TerminationCondition]:
    return [child for child in getattr(condition, CONDITIONS, ()) if isinstance(child, TerminationCondition)]

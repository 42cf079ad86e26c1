"""Budgets: what a run or an agent may use. They are checked before each request to a model and each run of code.

`coderoom run` has options for them, agents have `budget=`, teams have `coderoom.teams.BudgetTermination`, and scripts
have `limiting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any, Final, Self

from autogen_core import ComponentBase
from autogen_core.models import RequestUsage
from pydantic import Field, ValidationError, model_validator

from coderoom._util.autogen import clients_of, current_agent
from coderoom._util.components import StrictConfig
from coderoom._util.text import misfits
from coderoom.errors import BudgetExceeded, RequestError
from coderoom.models.prices import cost_of
from coderoom.models.watching import watch_client
from coderoom.steps import APPROVAL, CODE, MODEL, StepObserver, observing, tell_step

__all__ = ["Budget", "Spending", "limiting", "make_budget"]


RUN: Final = "the run"
"""Whose the budget of a whole run is, in words."""


class Budget(StrictConfig):
    """What may be used. A limit that is missing or null does not exist."""

    tokens: int | None = Field(default=None, ge=1, description="Tokens of prompts and completions.")
    cost_usd: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="US dollars, by the table of prices; a model without a price is refused.",
    )
    model_calls: int | None = Field(default=None, ge=1, description="Requests to models.")
    cells: int | None = Field(default=None, ge=1, description="Runs of code.")
    seconds: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Seconds since the beginning, or since the run was resumed.",
    )

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if not self:
            raise ValueError(f"a budget needs at least one of {', '.join(type(self).model_fields)}.")
        return self

    def __bool__(self) -> bool:
        """Whether it has a limit."""
        return any(value is not None for value in dict(self).values())


def make_budget(limits: Mapping[str, Any]) -> Budget | None:
    """A budget of plain values; `None` if there is no limit.

    Raises:
        RequestError: A name or a value is wrong.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    try:
        return Budget.model_validate(given) if given else None
    except ValidationError as error:
        if unknown := [name for name in given if name not in Budget.model_fields]:
            names = ", ".join(Budget.model_fields)
            raise RequestError(f"A budget has no limit {unknown[0]!r}; the limits are {names}.") from error
        raise RequestError(f"The budget is wrong: {misfits(error)}.") from error


_SHOWN: Final = {
    "tokens": ("{:,}", "tokens"),
    "cost_usd": ("${:.4f}", ""),
    "model_calls": ("{:,}", "model calls"),
    "cells": ("{:,}", "runs of code"),
    "seconds": ("{:.3g}", "s"),
}
_BEFORE: Final = {
    MODEL: ("model_calls", "tokens", "cost_usd", "seconds"),
    CODE: ("cells", "seconds"),
    APPROVAL: ("cells", "seconds"),  # Nobody is asked about code that must not run.
}
"""The limits that are checked before a step of a kind."""
_COUNTS: Final = {MODEL: "model_calls", CODE: "cells"}


class Spending(StepObserver):
    """What of a budget was used.

    Args:
        budget: The budget.
        owner: Whose it is, in words.
        agent: The agent whose turns it is for, if that agent takes no budget itself; `None`: all steps count.
        counts_known: Whether steps from before a run was resumed count.

    Attributes:
        used: What was used, by the names of the fields of a `Budget`.
    """

    def __init__(
        self, budget: Budget, owner: str = RUN, agent: str | None = None, *, counts_known: bool = True
    ) -> None:
        self.budget = budget
        self.owner = owner
        self._agent = agent
        self._counts_known = counts_known
        self.reset()
        self._begun: float | None = None  # Until the first step, so that putting a team together takes nothing of it.

    def reset(self) -> None:
        """Begin anew."""
        self.used: dict[str, float] = {"tokens": 0, "cost_usd": 0.0, "model_calls": 0, "cells": 0}
        self._begun = monotonic()

    def _seconds(self) -> float:
        self._begun = self._begun or monotonic()
        return monotonic() - self._begun

    def check(self, kind: str, model: str = "") -> None:
        """Refuse a step of this kind, of a model by its name in the table of prices, if it is not covered.

        Raises:
            BudgetExceeded: A limit was reached.
            RequestError: The budget has a limit of money, and the price of the model is not known.
        """
        if kind == MODEL:
            self.check_price(model)
        self.used["seconds"] = self._seconds()
        for name in _BEFORE.get(kind, ()):
            limit = getattr(self.budget, name)
            if limit is not None and self.used[name] >= limit:
                error = self.exceeded(name)
                # AutoGen's teams make a text of what their agents raise; observers still have the facts.
                tell_step("limit", {"words": str(error), "owner": error.owner, "limit": error.limit})
                raise error

    def check_price(self, model: str) -> None:
        """Raise a `RequestError` for a model whose price is not known, if there is a limit of money."""
        if self.budget.cost_usd is not None and cost_of(model, 0, 0) is None:
            raise RequestError(
                f"The budget of {self.owner} is in US dollars, and the price of the model {model!r} is not known. Add "
                f"{model.rpartition('#')[2]!r} to a file of prices, which CODEROOM_PRICES names."
            )

    def add(self, kind: str, model: str = "", usage: RequestUsage | None = None) -> None:
        """Count a step."""
        self._count(kind, 1)
        if kind == MODEL:
            self._charge(model, usage)

    def _count(self, kind: str, number: int) -> None:
        if kind in _COUNTS:
            self.used[_COUNTS[kind]] += number

    def _charge(self, model: str, usage: RequestUsage | None) -> None:
        prompt, completion = (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0)
        self.used["tokens"] += prompt + completion
        self.used["cost_usd"] += cost_of(model, prompt, completion) or 0

    def exceeded(self, first: str) -> BudgetExceeded:
        """What says that a limit was reached, and what was used of the others."""
        self.used["seconds"] = self._seconds()
        limits = [name for name in Budget.model_fields if getattr(self.budget, name) is not None and name != first]
        others = f" ({', '.join(map(self._share, limits))})" if limits else ""
        words = f"the budget of {self.owner} was reached: {self._share(first)}{others}"
        return BudgetExceeded(words, self.owner, first)

    def _share(self, name: str) -> str:
        form, unit = _SHOWN[name]
        used, limit = (form.format(value) for value in (self.used.get(name, 0), getattr(self.budget, name)))
        return f"{used} of {limit} {unit}".rstrip()

    # --- As a `StepObserver` ---

    def before(self, kind: str, request: Any) -> None:
        """Refuse a step that is not covered; or count it, so that others at the same time are refused."""
        if self._concerns():
            self.check(kind, request.get("priced_as", ""))
            self._count(kind, 1)

    def fail(self, kind: str, request: Any, error: BaseException, seconds: float) -> None:
        """A step that has failed does not count."""
        if self._concerns():
            self._count(kind, -1)

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Charge for a step; one from before a run was resumed counts too, a reply from a cache does not."""
        if not self._concerns() or (kind == MODEL and result.get("cached")) or (known and not self._counts_known):
            return
        if known:
            self._count(kind, 1)
        if kind == MODEL:
            self._charge(request.get("priced_as", ""), RequestUsage(**result["usage"]))

    def _concerns(self) -> bool:
        return self._agent in (None, current_agent())

    @contextmanager
    def limiting(self, whole: ComponentBase[Any]) -> Iterator[None]:
        """Check and charge what a team, an agent or a client does in this context.

        In a generator, it must not be around a `yield`: the context is that of the caller, too.
        """
        with ExitStack() as stack:
            for client in clients_of(whole):
                stack.callback(watch_client(client))
            stack.enter_context(observing(self))
            yield


@contextmanager
def limiting(team: Any, budget: Budget) -> Iterator[Spending]:
    """Limit what a team or an agent may use in this context. Contexts may be nested; each has its own count.

    ```python
    with limiting(team, Budget(tokens=20_000, cells=10)) as spending:
        await team.run(task="...")
    print(spending.used)
    ```

    Args:
        team: The team, an agent, or a model client, such as that of a generator.
        budget: What it may use.

    Yields:
        What it has used. A step that is not covered raises `BudgetExceeded` inside the team.

    Raises:
        RequestError: It is something else.
    """
    if not isinstance(team, ComponentBase):
        what = type(team).__name__
        raise RequestError(
            f"A team, an agent or a model client can be limited, and not {what!r}: pass its model client."
        )
    spending = Spending(budget)
    with spending.limiting(team):
        yield spending

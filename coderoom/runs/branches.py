"""What came of branches, as agents and the generator tell it, and what each of them has cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from coderoom.models.prices import cost_of


class Branch(BaseModel):
    """What came of a branch; `score` and `verdict` say how it was judged.

    The outcome and the exit code are `None` if there was no code, and `cost_usd` if it is not known.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    branch: str
    variation: str = ""
    outcome: str | None = None
    exit_code: int | None = None
    verdict: str = ""
    score: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    model: str = ""
    cost_usd: float | None = None

    @property
    def number(self) -> str:
        """Such as `2.1`: its number after that of the branching."""
        return self.branch.rpartition(" ")[2]


class Branches(BaseModel):
    """What came of the branches of one branching: which one goes on, if any, and why."""

    model_config = ConfigDict(frozen=True, extra="allow")

    branching: int
    won: str | None
    why: str
    branches: tuple[Branch, ...]

    @property
    def title(self) -> str:
        """Which branching it was, of which function in `solve`, and why that branch goes on."""
        name = f"branching {self.branching}"
        if self.won is None:
            return f"{name}: {self.why}"
        function, _, number = self.won.rpartition(" ")
        return f"{function and f'{function}: '}{name}: {number} goes on ({self.why})"

    def priced(self, costs: BranchCosts, source: str) -> Self:
        """The same with what the branches of an agent have cost, as far as it is known."""
        return self._with([costs.take(source, each.branch) or each.cost_usd for each in self.branches])

    def at_prices(self, model: str, others: Mapping[str, str]) -> Self:
        """The same with what the tokens cost at the price of a model, or at those of others that branches have."""
        priced = ((others.get(each.model, model), each) for each in self.branches)
        return self._with([cost_of(name, each.input_tokens, each.output_tokens) for name, each in priced])

    def _with(self, costs: Sequence[float | None]) -> Self:
        pairs = zip(self.branches, costs, strict=True)
        return self.model_copy(
            update={"branches": tuple(each.model_copy(update={"cost_usd": cost}) for each, cost in pairs)}
        )


class BranchCosts:
    """The list prices of the requests of branches that have not ended."""

    def __init__(self) -> None:
        self._costs: defaultdict[tuple[str, str], list[float | None]] = defaultdict(list)

    def add(self, agent: str, branch: str, priced_as: str, usage: Mapping[str, Any]) -> None:
        """Add a request of an agent."""
        cost = cost_of(priced_as, usage["prompt_tokens"], usage["completion_tokens"])
        self._costs[agent, branch].append(cost)

    def take(self, agent: str, branch: str) -> float | None:
        """What a branch, which has ended, has cost in US dollars; `None` if that is not known."""
        keys = (agent, branch), ("", branch)  # `solve` has no agents.
        costs = next((self._costs.pop(key) for key in keys if key in self._costs), [None])
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

"""Models: services and their clients, prices, structured answers, rates, budgets, and replies from recordings.

`RateLimitedClient` is a client around another one whose requests start no more often than allowed. `RecordedModel` and
`ReplayModel` answer from recordings. `limiting` limits what a team, an agent or a client may use by a `Budget`.
`CompactingContext` is a conversation that stays below a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coderoom._util.lazy import lazy

if TYPE_CHECKING:
    from coderoom.models.budgets import Budget, Spending, limiting, make_budget
    from coderoom.models.compacting import CompactingContext, CompactingContextConfig
    from coderoom.models.rate_limited import RateLimitedClient, RateLimitedClientConfig
    from coderoom.models.recorded import RecordedModel, ReplayModel

__all__ = [
    "Budget",
    "CompactingContext",
    "CompactingContextConfig",
    "RateLimitedClient",
    "RateLimitedClientConfig",
    "RecordedModel",
    "ReplayModel",
    "Spending",
    "limiting",
    "make_budget",
]

# Lazy, because quick commands need the names of services, and no AutoGen.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "coderoom.models.budgets": "Budget Spending limiting make_budget",
        "coderoom.models.compacting": "CompactingContext CompactingContextConfig",
        "coderoom.models.rate_limited": "RateLimitedClient RateLimitedClientConfig",
        "coderoom.models.recorded": "RecordedModel ReplayModel",
    },
)

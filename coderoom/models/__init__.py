"""Models: services and their clients, prices, structured answers, rates, budgets, and replies from recordings.

`RateLimitedClient` is a client around another one whose requests start no more often than allowed. `RecordedModel` and
`ReplayModel` answer from recordings. `limiting` limits what a team, an agent or a client may use by a `Budget`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coderoom.models.budgets import Budget, Spending, limiting, make_budget
    from coderoom.models.rate_limited import RateLimitedClient, RateLimitedClientConfig
    from coderoom.models.recorded import RecordedModel, ReplayModel

_MODULES = {
    "Budget": "budgets",
    "RateLimitedClient": "rate_limited",
    "RateLimitedClientConfig": "rate_limited",
    "RecordedModel": "recorded",
    "ReplayModel": "recorded",
    "Spending": "budgets",
    "limiting": "budgets",
    "make_budget": "budgets",
}

__all__ = [
    "Budget",
    "RateLimitedClient",
    "RateLimitedClientConfig",
    "RecordedModel",
    "ReplayModel",
    "Spending",
    "limiting",
    "make_budget",
]


def __getattr__(name: str) -> Any:
    # Lazy, because quick commands need the names of services, and no AutoGen.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"coderoom.models.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

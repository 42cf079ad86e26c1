"""Teams, and the conditions that stop them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import coderoom._util.full  # noqa: F401
from coderoom._util.lazy import lazy
from coderoom.teams.coding_team import CodingTeam, CodingTeamConfig
from coderoom.teams.conditions import (
    BudgetTermination,
    CodeSucceeded,
    NoProgress,
    ReviewApproved,
    StatefulCondition,
    TextMentionTermination,
    conditions_of,
)
from coderoom.teams.team_agent import TeamAgent, TeamAgentConfig

if TYPE_CHECKING:
    from coderoom.teams.tests_pass import TestsPass, TestsPassConfig

__all__ = [
    "BudgetTermination",
    "CodeSucceeded",
    "CodingTeam",
    "CodingTeamConfig",
    "NoProgress",
    "ReviewApproved",
    "StatefulCondition",
    "TeamAgent",
    "TeamAgentConfig",
    "TestsPass",
    "TestsPassConfig",
    "TextMentionTermination",
    "conditions_of",
]

# Lazy, so that teams are imported without the judge.
__getattr__, __dir__ = lazy(__name__, {"coderoom.teams.tests_pass": "TestsPass TestsPassConfig"})

"""Teams, and the conditions that stop them."""

import coderoom._util.full  # noqa: F401
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
    "TextMentionTermination",
    "conditions_of",
]

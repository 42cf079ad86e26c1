"""Teams, and the conditions that stop them."""

from coderoom.teams.coding_team import CodingTeam, CodingTeamConfig
from coderoom.teams.conditions import (
    CodeSucceeded,
    NoProgress,
    ReviewApproved,
    StatefulCondition,
    TextMentionTermination,
)
from coderoom.teams.team_agent import TeamAgent, TeamAgentConfig

__all__ = [
    "CodeSucceeded",
    "CodingTeam",
    "CodingTeamConfig",
    "NoProgress",
    "ReviewApproved",
    "StatefulCondition",
    "TeamAgent",
    "TeamAgentConfig",
    "TextMentionTermination",
]

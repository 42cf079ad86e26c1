"""Teams that take turns, and when they stop."""

from coderoom.teams._coding_team import CodingTeam, CodingTeamConfig
from coderoom.teams._conditions import CodeSucceeded, NoProgress, ReviewApproved, StatefulCondition
from coderoom.teams._team_agent import TeamAgent, TeamAgentConfig

__all__ = [
    "CodeSucceeded",
    "CodingTeam",
    "CodingTeamConfig",
    "NoProgress",
    "ReviewApproved",
    "StatefulCondition",
    "TeamAgent",
    "TeamAgentConfig",
]

"""Agents that write, run and review code, as AutoGen chat agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import coderoom._util.full  # noqa: F401
from coderoom._util.lazy import lazy

if TYPE_CHECKING:
    from coderoom.agents.branch_judges import BranchCheck, BranchJudge, BranchReviewer, BranchTests, Candidate, Mark
    from coderoom.agents.code_act import CodeActAgent, CodeActAgentConfig
    from coderoom.agents.code_executor import CodeExecutorAgent, CodeExecutorAgentConfig, RetryDecision
    from coderoom.agents.code_generator import CodeGeneratorAgent, CodeGeneratorAgentConfig
    from coderoom.agents.human_approved import HumanApprovedAgent, HumanApprovedAgentConfig
    from coderoom.agents.judge_agent import JudgeAgent, JudgeAgentConfig
    from coderoom.agents.metadata import StopReason
    from coderoom.agents.reviewer import ReviewerAgent, ReviewerAgentConfig, ReviewIssue, ReviewVerdict
    from coderoom.agents.selection import Selection
    from coderoom.agents.variations import Variation
    from coderoom.approval import ApprovalFuncType, ApprovalRequest, ApprovalResponse

__all__ = [
    "ApprovalFuncType",
    "ApprovalRequest",
    "ApprovalResponse",
    "BranchCheck",
    "BranchJudge",
    "BranchReviewer",
    "BranchTests",
    "Candidate",
    "CodeActAgent",
    "CodeActAgentConfig",
    "CodeExecutorAgent",
    "CodeExecutorAgentConfig",
    "CodeGeneratorAgent",
    "CodeGeneratorAgentConfig",
    "HumanApprovedAgent",
    "HumanApprovedAgentConfig",
    "JudgeAgent",
    "JudgeAgentConfig",
    "Mark",
    "RetryDecision",
    "ReviewIssue",
    "ReviewVerdict",
    "ReviewerAgent",
    "ReviewerAgentConfig",
    "Selection",
    "StopReason",
    "Variation",
]

# Lazy, so that one agent is imported without the others and the generator.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "coderoom.agents.branch_judges": "BranchCheck BranchJudge BranchReviewer BranchTests Candidate Mark",
        "coderoom.agents.code_act": "CodeActAgent CodeActAgentConfig",
        "coderoom.agents.code_executor": "CodeExecutorAgent CodeExecutorAgentConfig RetryDecision",
        "coderoom.agents.code_generator": "CodeGeneratorAgent CodeGeneratorAgentConfig",
        "coderoom.agents.human_approved": "HumanApprovedAgent HumanApprovedAgentConfig",
        "coderoom.agents.judge_agent": "JudgeAgent JudgeAgentConfig",
        "coderoom.agents.metadata": "StopReason",
        "coderoom.agents.reviewer": "ReviewerAgent ReviewerAgentConfig ReviewIssue ReviewVerdict",
        "coderoom.agents.selection": "Selection",
        "coderoom.agents.variations": "Variation",
        "coderoom.approval": "ApprovalFuncType ApprovalRequest ApprovalResponse",
    },
)

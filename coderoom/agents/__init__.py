"""Agents that write, run and review code, as AutoGen chat agents."""

from coderoom.agents.attempt import Selection
from coderoom.agents.code_act import CodeActAgent, CodeActAgentConfig
from coderoom.agents.code_executor import CodeExecutorAgent, CodeExecutorAgentConfig, RetryDecision
from coderoom.agents.code_generator import CodeGeneratorAgent, CodeGeneratorAgentConfig
from coderoom.agents.human_approved import HumanApprovedAgent, HumanApprovedAgentConfig
from coderoom.agents.metadata import StopReason
from coderoom.agents.reviewer import ReviewerAgent, ReviewerAgentConfig, ReviewIssue, ReviewVerdict
from coderoom.approval import ApprovalFuncType, ApprovalRequest, ApprovalResponse

__all__ = [
    "ApprovalFuncType",
    "ApprovalRequest",
    "ApprovalResponse",
    "CodeActAgent",
    "CodeActAgentConfig",
    "CodeExecutorAgent",
    "CodeExecutorAgentConfig",
    "CodeGeneratorAgent",
    "CodeGeneratorAgentConfig",
    "HumanApprovedAgent",
    "HumanApprovedAgentConfig",
    "RetryDecision",
    "ReviewIssue",
    "ReviewVerdict",
    "ReviewerAgent",
    "ReviewerAgentConfig",
    "Selection",
    "StopReason",
]

"""Agents that write, run and review code, as AutoGen chat agents."""

from coderoom.agents.code_act import CodeActAgent
from coderoom.agents.code_act_config import CodeActAgentConfig
from coderoom.agents.code_executor import CodeExecutorAgent
from coderoom.agents.code_executor_config import CodeExecutorAgentConfig
from coderoom.agents.code_generator import CodeGeneratorAgent, CodeGeneratorAgentConfig
from coderoom.agents.decisions import RetryDecision, StopReason
from coderoom.agents.human_approved import HumanApprovedAgent, HumanApprovedAgentConfig
from coderoom.agents.reviewer import ReviewerAgent, ReviewerAgentConfig
from coderoom.agents.verdict import ReviewIssue, ReviewVerdict
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
    "StopReason",
]

"""Agents that write, run and review code, as AutoGen chat agents."""

from coderoom.agents._code_act import CodeActAgent
from coderoom.agents._code_act_config import CodeActAgentConfig
from coderoom.agents._code_executor import CodeExecutorAgent
from coderoom.agents._code_executor_config import CodeExecutorAgentConfig
from coderoom.agents._code_generator import CodeGeneratorAgent, CodeGeneratorAgentConfig
from coderoom.agents._decisions import RetryDecision, StopReason
from coderoom.agents._human_approved import HumanApprovedAgent, HumanApprovedAgentConfig
from coderoom.agents._reviewer import ReviewerAgent, ReviewerAgentConfig
from coderoom.agents._verdict import ReviewIssue, ReviewVerdict
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

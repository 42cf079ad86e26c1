"""Agents that write, run and review code, as AutoGen chat agents."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "ApprovalFuncType": "coderoom.approval",
    "ApprovalRequest": "coderoom.approval",
    "ApprovalResponse": "coderoom.approval",
    "CodeActAgent": "coderoom.agents.code_act",
    "CodeActAgentConfig": "coderoom.agents.code_act",
    "CodeExecutorAgent": "coderoom.agents.code_executor",
    "CodeExecutorAgentConfig": "coderoom.agents.code_executor",
    "CodeGeneratorAgent": "coderoom.agents.code_generator",
    "CodeGeneratorAgentConfig": "coderoom.agents.code_generator",
    "HumanApprovedAgent": "coderoom.agents.human_approved",
    "HumanApprovedAgentConfig": "coderoom.agents.human_approved",
    "RetryDecision": "coderoom.agents.code_executor",
    "ReviewIssue": "coderoom.agents.reviewer",
    "ReviewVerdict": "coderoom.agents.reviewer",
    "ReviewerAgent": "coderoom.agents.reviewer",
    "ReviewerAgentConfig": "coderoom.agents.reviewer",
    "Selection": "coderoom.agents.attempt",
    "StopReason": "coderoom.agents.metadata",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that one agent is imported without the others and the generator.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Approvals decide whether code may run: a person, a model, rules, or several of them, as AutoGen components.

Every `Approval` can be used as an `approval_func` of AutoGen's agents and in a team file. Agents ask through
`ask_approval`, which accepts plain functions too and treats every error as a no.

An approval does not isolate the code that runs; the executor does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_agentchat.agents import ApprovalFuncType, ApprovalRequest, ApprovalResponse

    from coderoom.approval.automatic import ModelApproval, Rule, RuleApproval
    from coderoom.approval.base import AlwaysApprove, Approval, ChainApproval, NeverApprove, approve_once, ask_approval
    from coderoom.approval.human import HumanApproval, InputApproval, InputFunc

__all__ = [
    "AlwaysApprove",
    "Approval",
    "ApprovalFuncType",
    "ApprovalRequest",
    "ApprovalResponse",
    "ChainApproval",
    "HumanApproval",
    "InputApproval",
    "InputFunc",
    "ModelApproval",
    "NeverApprove",
    "Rule",
    "RuleApproval",
    "approve_once",
    "ask_approval",
]

_MODULES = {
    "AlwaysApprove": "coderoom.approval.base",
    "Approval": "coderoom.approval.base",
    "ApprovalFuncType": "autogen_agentchat.agents",
    "ApprovalRequest": "autogen_agentchat.agents",
    "ApprovalResponse": "autogen_agentchat.agents",
    "ChainApproval": "coderoom.approval.base",
    "HumanApproval": "coderoom.approval.human",
    "InputApproval": "coderoom.approval.human",
    "InputFunc": "coderoom.approval.human",
    "ModelApproval": "coderoom.approval.automatic",
    "NeverApprove": "coderoom.approval.base",
    "Rule": "coderoom.approval.automatic",
    "RuleApproval": "coderoom.approval.automatic",
    "approve_once": "coderoom.approval.base",
    "ask_approval": "coderoom.approval.base",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that an approval is imported without the others.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

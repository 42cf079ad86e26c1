"""Approvals decide whether code may run: a person, a model, rules, or several of them, as AutoGen components.

Every `Approval` can be used as an `approval_func` of AutoGen's agents and in a team file. Agents ask through
`ask_approval`, which accepts plain functions too and treats every error as a no.

An approval does not isolate the code that runs; the executor does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import coderoom._util.full  # noqa: F401
from coderoom._util.lazy import lazy

if TYPE_CHECKING:
    from autogen_agentchat.agents import ApprovalFuncType, ApprovalRequest, ApprovalResponse

    from coderoom.approval.answers import Edited, FinalNo, edited_blocks
    from coderoom.approval.automatic import ModelApproval, Rule, RuleApproval
    from coderoom.approval.base import AlwaysApprove, Approval, ChainApproval, NeverApprove, approve_once, ask_approval
    from coderoom.approval.by_input import InputApproval, InputFunc
    from coderoom.approval.call_gate import CallGate, CallingCode, CallRule, belong_to, calling
    from coderoom.approval.calls import Always, CallRequest
    from coderoom.approval.changes import approve_changes
    from coderoom.approval.human import HumanApproval

__all__ = [
    "Always",
    "AlwaysApprove",
    "Approval",
    "ApprovalFuncType",
    "ApprovalRequest",
    "ApprovalResponse",
    "CallGate",
    "CallRequest",
    "CallRule",
    "CallingCode",
    "ChainApproval",
    "Edited",
    "FinalNo",
    "HumanApproval",
    "InputApproval",
    "InputFunc",
    "ModelApproval",
    "NeverApprove",
    "Rule",
    "RuleApproval",
    "approve_changes",
    "approve_once",
    "ask_approval",
    "belong_to",
    "calling",
    "edited_blocks",
]

# Lazy, so that an approval is imported without the others.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "autogen_agentchat.agents": "ApprovalFuncType ApprovalRequest ApprovalResponse",
        "coderoom.approval.answers": "Edited FinalNo edited_blocks",
        "coderoom.approval.automatic": "ModelApproval Rule RuleApproval",
        "coderoom.approval.base": "AlwaysApprove Approval ChainApproval NeverApprove approve_once ask_approval",
        "coderoom.approval.by_input": "InputApproval InputFunc",
        "coderoom.approval.call_gate": "CallGate CallingCode CallRule belong_to calling",
        "coderoom.approval.calls": "Always CallRequest",
        "coderoom.approval.changes": "approve_changes",
        "coderoom.approval.human": "HumanApproval",
    },
)

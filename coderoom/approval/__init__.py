"""Who may say yes to code: a person, a model, rules, or several of them, as AutoGen components.

Every `Approval` is an AutoGen `approval_func` as well, and one that a team file can name. Agents ask through
`ask_approval`, which takes plain functions too and turns everything that goes wrong into a no.

An approval decides what is started. It is no wall around what runs: that is the executor's work.
"""

from autogen_agentchat.agents import ApprovalFuncType, ApprovalRequest, ApprovalResponse

from coderoom.approval.base import AlwaysApprove, Approval, NeverApprove, ask_approval
from coderoom.approval.chain import ChainApproval
from coderoom.approval.human import HumanApproval
from coderoom.approval.model import ModelApproval
from coderoom.approval.remote import InputApproval, InputFunc
from coderoom.approval.rules import Rule, RuleApproval

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
    "ask_approval",
]

"""Asks an approval whether changes of files may be written, as it is asked whether code may run."""

from __future__ import annotations

from autogen_agentchat.agents import ApprovalFuncType, ApprovalResponse
from autogen_core import CancellationToken

from coderoom.approval.answers import ChangesRequest, Edited, no
from coderoom.approval.base import Approval, approve_once
from coderoom.blocks import fence
from coderoom.sandbox import Changes, Patch


async def approve_changes(
    approval: Approval | ApprovalFuncType, changes: Changes, patch: Patch, token: CancellationToken | None = None
) -> ApprovalResponse:
    """Ask whether the changes of a session may be written into its workspace. Every error counts as a no.

    The approval sees one block in the language `diff`: what has changed, as lines with a `#`, and the patch.

    Args:
        approval: A person, rules, a model, or several of them.
        changes: The result of `Session.changes`.
        patch: The result of `Session.diff`.
        token: Ends the question.

    Returns:
        The answer, of which a resumed run makes no question again.
    """
    listed = "".join(f"# {change}\n" for change in changes)
    request = ChangesRequest(code=fence(f"{listed}{patch}", "diff"), context=[])
    answer = await approve_once(approval, request, token or CancellationToken())
    return no("Changes of files can be written as they are, and not edited.") if isinstance(answer, Edited) else answer

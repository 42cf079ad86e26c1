"""`ChainApproval`: several approvals as one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Literal, Self

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import Component, ComponentModel

from coderoom._util.components import StrictConfig
from coderoom.approval.base import NOBODY_DECIDED, Approval, as_response, no

__all__ = ["ChainApproval"]


class ChainApprovalConfig(StrictConfig):
    """Config of `ChainApproval`."""

    approvals: list[ComponentModel]
    mode: Literal["first", "all"] = "first"


class ChainApproval(Approval, Component[ChainApprovalConfig]):
    """Asks several approvals, one after the other.

    A typical chain has rules for clear cases and a person for the rest:
    `ChainApproval([RuleApproval([...]), HumanApproval()])`.

    Args:
        approvals: The approvals, in order.
        mode: `"first"`: the first approval with an opinion decides. `"all"`: all approvals with an opinion must say
            yes, and the first no ends the chain. Code on which no approval has an opinion does not run; inside another
            chain, that chain goes on.

    Raises:
        TypeError: An item of `approvals` is not an `Approval`.
        ValueError: The mode is unknown.
    """

    component_config_schema = ChainApprovalConfig
    component_provider_override = "coderoom.approval.ChainApproval"

    def __init__(self, approvals: Sequence[Approval], mode: Literal["first", "all"] = "first") -> None:
        for index, approval in enumerate(approvals):
            if not isinstance(approval, Approval):
                raise TypeError(
                    f"approvals[{index}] is {approval!r}, which is not an Approval; to put a function into a chain, "
                    "call it from the `decide` of a subclass of Approval."
                )
        if mode not in ("first", "all"):
            raise ValueError(f"mode must be 'first' or 'all', not {mode!r}.")
        self._approvals = tuple(approvals)
        self._mode: Literal["first", "all"] = mode

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Ask in order until it is decided."""
        return await self._opinion(request) or no(NOBODY_DECIDED)

    async def _opinion(self, request: ApprovalRequest) -> ApprovalResponse | None:
        agreed: list[str] = []
        for approval in self._approvals:
            # A chain without an opinion leaves the decision to the next approval of the outer chain.
            if isinstance(approval, ChainApproval) and type(approval).decide is ChainApproval.decide:
                answer = await approval._opinion(request)
            else:
                answer = await approval.decide(request)
            if answer is None:
                continue
            response = as_response(answer)
            if self._mode == "first" or not response.approved:
                return response
            agreed.append(response.reason)
        return ApprovalResponse(approved=True, reason=" ".join(filter(None, agreed))) if agreed else None

    async def close(self) -> None:
        """Close all approvals of the chain, even if one of them fails."""
        async with AsyncExitStack() as stack:
            for approval in self._approvals:
                stack.push_async_callback(approval.close)

    def _to_config(self) -> ChainApprovalConfig:
        return ChainApprovalConfig(
            approvals=[approval.dump_component() for approval in self._approvals], mode=self._mode
        )

    @classmethod
    def _from_config(cls, config: ChainApprovalConfig) -> Self:
        return cls([Approval.load_component(model) for model in config.approvals], mode=config.mode)

"""What every approval is, and the two that need not think."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import CodeType
from typing import Final, Self

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import Component, ComponentBase
from pydantic import BaseModel

from coderoom._util.components import DumpsAsItself, StrictConfig

__all__ = ["NOBODY_DECIDED", "AlwaysApprove", "Approval", "NeverApprove", "as_response", "no"]

NOBODY_DECIDED: Final = "Nobody who was asked had an opinion on this code, and without a yes it does not run."


def no(reason: str) -> ApprovalResponse:
    """A no, with why."""
    return ApprovalResponse(approved=False, reason=reason)


def as_response(answer: object) -> ApprovalResponse:
    """What an approver answered as AutoGen's type; whatever is neither that nor a bool is a no."""
    if isinstance(answer, ApprovalResponse):
        return answer
    if isinstance(answer, bool):
        return ApprovalResponse(approved=answer, reason="Approved." if answer else "Not approved.")
    return no(f"The approval answered with {type(answer).__name__} where an ApprovalResponse was expected.")


class Approval(DumpsAsItself, ABC, ComponentBase[BaseModel]):
    """Decides whether code may run.

    Write your own by implementing `decide`. To let it be named in a team file, derive from
    `autogen_core.Component[YourConfig]` as well and implement `_to_config` and `_from_config`; a subclass is dumped
    under its own name, also if its base is one of the classes here.

    An approval can be called, so it is a valid `approval_func` for AutoGen's own agents too.
    """

    component_type = "approval"

    @abstractmethod
    async def decide(self, request: ApprovalRequest) -> ApprovalResponse | None:
        """Decide on a request.

        Args:
            request: The code, as Markdown with one fence for each block, and the conversation that led to it.

        Returns:
            The decision, or `None` for "I have no opinion, ask the next one".
        """

    async def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        """Decide on a request where there is nobody else to ask: having no opinion is a no."""
        answer = await self.decide(request)
        return no(NOBODY_DECIDED) if answer is None else as_response(answer)

    # AutoGen's own agent awaits only what `inspect.iscoroutinefunction` knows, and on Python 3.11 that knows nothing
    # but functions and what has their attributes.
    __defaults__ = None
    __kwdefaults__ = None

    @property
    def __name__(self) -> str:
        return type(self).__qualname__

    @property
    def __code__(self) -> CodeType:
        return type(self).__call__.__code__

    async def close(self) -> None:
        """Let go of what the approval holds; it may be asked again afterwards."""


class AlwaysApproveConfig(StrictConfig):
    """Config of `AlwaysApprove`."""


class AlwaysApprove(Approval, Component[AlwaysApproveConfig]):
    """Says yes to everything. For code whose sandbox is trusted to hold."""

    component_config_schema = AlwaysApproveConfig
    component_provider_override = "coderoom.approval.AlwaysApprove"

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Say yes."""
        return ApprovalResponse(approved=True, reason="All code is approved here.")

    def _to_config(self) -> AlwaysApproveConfig:
        return AlwaysApproveConfig()

    @classmethod
    def _from_config(cls, config: AlwaysApproveConfig) -> Self:
        return cls()


class NeverApproveConfig(StrictConfig):
    """Config of `NeverApprove`."""

    reason: str = "No code is approved here."


class NeverApprove(Approval, Component[NeverApproveConfig]):
    """Says no to everything: for a dry run, or as the end of a chain.

    Args:
        reason: What is given as the reason, to people and models alike.
    """

    component_config_schema = NeverApproveConfig
    component_provider_override = "coderoom.approval.NeverApprove"

    def __init__(self, reason: str = "No code is approved here.") -> None:
        self._config = NeverApproveConfig(reason=reason)

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse:
        """Say no."""
        return no(self._config.reason)

    def _to_config(self) -> NeverApproveConfig:
        return self._config

    @classmethod
    def _from_config(cls, config: NeverApproveConfig) -> Self:
        return cls(reason=config.reason)

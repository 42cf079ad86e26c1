from __future__ import annotations

import inspect

import pytest
from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel, ValidationError

from coderoom import approval as public
from coderoom.approval import (
    AlwaysApprove,
    Approval,
    ApprovalRequest,
    ApprovalResponse,
    ChainApproval,
    FinalNo,
    HumanApproval,
    ModelApproval,
    NeverApprove,
    Rule,
    RuleApproval,
)

REQUEST = ApprovalRequest(code="```python\nprint(1)\n```", context=[])


class Undecided(Approval):
    async def decide(self, request: ApprovalRequest) -> ApprovalResponse | None:
        return None


class PoliteNo(NeverApprove):
    """Says no, politely."""


class LimitConfig(BaseModel):
    most: int


class ShortOnly(Approval, Component[LimitConfig]):
    component_config_schema = LimitConfig

    def __init__(self, most: int) -> None:
        self.most = most

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse | None:
        return ApprovalResponse(approved=len(request.code) <= self.most, reason="length")

    def _to_config(self) -> LimitConfig:
        return LimitConfig(most=self.most)

    @classmethod
    def _from_config(cls, config: LimitConfig) -> ShortOnly:
        return cls(config.most)


def replay(*answers: str) -> ReplayChatCompletionClient:
    return ReplayChatCompletionClient(list(answers))


EVERY_KIND = [
    AlwaysApprove(),
    NeverApprove(),
    NeverApprove(reason="closed on Sundays"),
    HumanApproval(),
    HumanApproval(timeout=None, prompt="May it?"),
    HumanApproval(timeout=2.5),
    ModelApproval(replay("a", "b")),
    ModelApproval(replay("a"), instructions="Only say yes.", timeout=None),
    RuleApproval([]),
    RuleApproval(
        [
            Rule(pattern=r"\brm\b", action="deny", language="sh", reason="no deleting"),
            Rule(pattern=r"\A\s*\Z", action="allow"),
        ],
        default="deny",
    ),
    ChainApproval([]),
    ChainApproval(
        [
            ChainApproval([RuleApproval([Rule(pattern="x", action="ask")]), AlwaysApprove()], mode="all"),
            HumanApproval(timeout=None),
            ModelApproval(replay("yes"), timeout=None),
            ShortOnly(10),
        ]
    ),
    PoliteNo("sorry"),
]


@pytest.mark.parametrize("approval", EVERY_KIND, ids=lambda approval: type(approval).__name__)
def test_every_kind_comes_back_from_its_config_as_it_was(approval: Approval) -> None:
    dumped = approval.dump_component()
    # Through JSON and with nothing that is None, which is what a team file and AutoGen make of it.
    text = dumped.model_dump_json(exclude_none=True)
    again = Approval.load_component(ComponentModel.model_validate_json(text))

    assert type(again) is type(approval)
    assert again.dump_component() == dumped
    assert dumped.component_type == "approval"


@pytest.mark.parametrize(
    "name", ["AlwaysApprove", "NeverApprove", "HumanApproval", "ModelApproval", "RuleApproval", "ChainApproval"]
)
def test_a_component_is_named_by_its_public_path(name: str) -> None:
    assert getattr(public, name).component_provider_override == f"coderoom.approval.{name}"


def test_no_timeout_survives_in_the_config_and_a_missing_one_is_the_default() -> None:
    dumped = HumanApproval(timeout=None).dump_component()
    assert dumped.config["timeout"] is None
    loaded = Approval.load_component({"provider": "coderoom.approval.HumanApproval", "config": {}})
    assert loaded.dump_component().config["timeout"] == 300.0


@pytest.mark.parametrize("approval", EVERY_KIND[:10], ids=lambda approval: type(approval).__name__)
def test_a_config_refuses_a_key_that_it_does_not_know(approval: Approval) -> None:
    dumped = approval.dump_component()
    dumped.config["tiemout"] = 3
    with pytest.raises(ValidationError, match="tiemout"):
        Approval.load_component(dumped)


def test_a_subclass_of_a_user_is_dumped_as_itself() -> None:
    dumped = PoliteNo("sorry").dump_component()
    assert dumped.provider == f"{__name__}.PoliteNo"
    assert dumped.description == "Says no, politely."
    assert isinstance(Approval.load_component(dumped), PoliteNo)
    assert NeverApprove().dump_component().provider == "coderoom.approval.NeverApprove"


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        HumanApproval(timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        ModelApproval(replay(), timeout=timeout)


async def test_always_and_never() -> None:
    assert (await AlwaysApprove()(REQUEST)).approved is True
    assert await NeverApprove("too late")(REQUEST) == FinalNo(reason="too late")
    assert (await NeverApprove().decide(REQUEST)).reason


async def test_no_opinion_is_a_no_for_who_calls() -> None:
    assert await Undecided().decide(REQUEST) is None
    answer = await Undecided()(REQUEST)
    assert answer.approved is False
    assert "opinion" in answer.reason


async def test_close_does_nothing_by_default() -> None:
    approval = AlwaysApprove()
    await approval.close()
    assert (await approval(REQUEST)).approved


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor:UserWarning")
@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_serves_autogens_own_agent(approved: bool) -> None:
    approval = AlwaysApprove() if approved else NeverApprove("not here")
    assert inspect.iscoroutinefunction(approval)
    executor = LocalCommandLineCodeExecutor()
    await executor.start()
    try:
        agent = CodeExecutorAgent("runner", executor, approval_func=approval)
        message = TextMessage(content="```sh\necho it $((40 + 2))\n```", source="user")
        response = await agent.on_messages([message], CancellationToken())
    finally:
        await executor.stop()
    text = response.chat_message.to_text()
    assert ("it 42" in text) is approved
    assert ("not here" in text) is not approved

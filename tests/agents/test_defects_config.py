"""Configs: CE1 (lossless), CE19 (checked), CE20 (defaults, subclasses)."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from autogen_core import ComponentModel
from autogen_core.memory import ListMemory
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import ValidationError

from coderoom.agents import ApprovalRequest, ApprovalResponse, BranchTests, CodeExecutorAgent, ReviewerAgent
from coderoom.approval import NeverApprove
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from coderoom.models.budgets import Budget
from tests.agents.helpers import (
    BAD,
    GOOD,
    WORSE,
    EchoClient,
    LoudCoder,
    LoudReviewer,
    decide,
    facts_of,
    info,
    text_of,
    turn,
)


def replay(*replies: str) -> ReplayChatCompletionClient:
    return ReplayChatCompletionClient(list(replies), model_info=info(function_calling=True))


def arguments_of_every_kind(folder: Path, *replies: str) -> dict[str, Any]:
    """A value that is not the default for each argument of the constructor."""
    return {
        "name": "coder",
        "code_executor": SandboxCodeExecutor(work_dir=folder, timeout=7),
        "model_client": replay(*replies),
        "model_context": BufferedChatCompletionContext(buffer_size=5),
        "model_client_stream": True,
        "max_retries_on_error": 3,
        "description": "Does it.",
        "system_message": "Be brief.",
        "sources": ["user", "writer"],
        "supported_languages": ["python", "bash"],
        "approval_func": NeverApprove("not on my watch"),
        "reflect": False,
        "max_output_chars": 1234,
        "retry_from": "clean",
        "memory": [ListMemory("notes")],
        "handoffs": ["boss"],
        "budget": Budget(cells=9),
        "branches": 2,
        "branch_judge": BranchTests("assert True"),
    }


def reloaded(agent: CodeExecutorAgent) -> CodeExecutorAgent:
    """The agent after a trip through JSON."""
    return CodeExecutorAgent.load_component(json.loads(agent.dump_component().model_dump_json()))


def config_for(folder: Path, **config: Any) -> ComponentModel:
    whole = {"name": "coder", "code_executor": LocalCodeExecutor(work_dir=folder).dump_component(), **config}
    return ComponentModel(provider="coderoom.agents.CodeExecutorAgent", component_type="agent", config=whole)


def test_ce01_every_argument_is_dumped_as_it_was_given(tmp_path: Path) -> None:
    arguments = arguments_of_every_kind(tmp_path)
    assert set(arguments) == set(inspect.signature(CodeExecutorAgent).parameters)
    given = {
        key: value.dump_component().model_dump() if hasattr(value, "dump_component") else value
        for key, value in arguments.items()
    }
    given["budget"] = {"cells": 9}
    given["memory"] = [memory.dump_component().model_dump() for memory in arguments["memory"]]
    given["approval"] = given.pop("approval_func")

    assert CodeExecutorAgent(**arguments).dump_component().config == given


def test_ce01_no_argument_is_left_at_its_default_by_the_test_above(tmp_path: Path) -> None:
    plain = CodeExecutorAgent("terminal", LocalCodeExecutor()).dump_component().config
    full = CodeExecutorAgent(**arguments_of_every_kind(tmp_path)).dump_component().config
    assert [key for key in full if plain.get(key) == full[key]] == []


def test_ce01_loading_gives_back_what_was_dumped(tmp_path: Path) -> None:
    agent = CodeExecutorAgent(**arguments_of_every_kind(tmp_path))
    once = reloaded(agent)
    assert once.dump_component() == agent.dump_component()
    assert reloaded(once).dump_component() == agent.dump_component()


def test_ce01_defaults_come_back_as_defaults(tmp_path: Path) -> None:
    agent = CodeExecutorAgent("coder", LocalCodeExecutor(work_dir=tmp_path))
    assert reloaded(agent).dump_component() == agent.dump_component()
    smallest = CodeExecutorAgent.load_component(config_for(tmp_path))
    assert smallest.dump_component() == agent.dump_component()


async def test_ce01_a_loaded_agent_still_retries(tmp_path: Path) -> None:
    arguments = arguments_of_every_kind(tmp_path, BAD, decide(True), WORSE, decide(True), GOOD)
    arguments |= {"approval_func": None, "model_context": None, "branches": 1, "branch_judge": None}
    agent = reloaded(CodeExecutorAgent(**arguments))
    facts = facts_of(await turn(agent, "TASK"))
    await agent.close()
    assert (facts["attempts"], facts["outcome"]) == ("3", "ok")


async def test_ce01_a_loaded_agent_still_asks_for_approval(tmp_path: Path) -> None:
    agent = reloaded(CodeExecutorAgent(**arguments_of_every_kind(tmp_path, GOOD)))
    response = await turn(agent, "TASK")
    await agent.close()
    assert facts_of(response)["outcome"] == "rejected"
    assert "not on my watch" in text_of(response)


def test_ce01_a_function_as_approval_is_refused_with_the_way_out(tmp_path: Path) -> None:
    def approve(request: ApprovalRequest) -> ApprovalResponse:
        raise NotImplementedError

    agent = CodeExecutorAgent("coder", LocalCodeExecutor(work_dir=tmp_path), approval_func=approve)
    with pytest.raises(ValueError, match=r"coderoom\.approval"):
        agent.dump_component()


@pytest.mark.parametrize("key", ["max_retries", "approval_func", "System_message", "max_output_char"])
def test_ce01_an_unknown_key_is_not_dropped_in_silence(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=key):
        CodeExecutorAgent.load_component(config_for(tmp_path, **{key: 2}))


@pytest.mark.parametrize(
    ("key", "wrong", "said"),
    [("max_retries_on_error", -1, "0 or more"), ("max_output_chars", 199, "200 or more")],
)
def test_ce19_a_number_out_of_range_is_refused(key: str, wrong: int, said: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {key: wrong}
    with pytest.raises(ValueError, match=said):
        CodeExecutorAgent("coder", LocalCodeExecutor(work_dir=tmp_path), model_client=replay(), **arguments)
    with pytest.raises(ValidationError, match=key):
        CodeExecutorAgent.load_component(config_for(tmp_path, model_client=replay().dump_component(), **arguments))


def test_ce19_retries_that_nobody_could_write_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="model_client"):
        CodeExecutorAgent("coder", LocalCodeExecutor(work_dir=tmp_path), max_retries_on_error=1)


async def sent_by(agent: CodeExecutorAgent) -> list[str]:
    """The system messages that the agent's model gets."""
    said: list[str] = json.loads(text_of(await turn(agent, "TASK")))
    return said


async def test_ce20_what_a_config_leaves_out_is_the_default(tmp_path: Path) -> None:
    loaded = CodeExecutorAgent.load_component(config_for(tmp_path, model_client=EchoClient().dump_component()))
    assert await sent_by(loaded) == [CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, [CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE]),
        ({"system_message": None}, []),
        ({"system_message": "Be brief."}, ["Be brief."]),
    ],
)
async def test_ce20_the_system_message_survives_the_round_trip(
    given: dict[str, Any], sent: list[str], tmp_path: Path
) -> None:
    agent = CodeExecutorAgent("coder", LocalCodeExecutor(work_dir=tmp_path), model_client=EchoClient(), **given)
    assert await sent_by(agent) == sent
    assert await sent_by(reloaded(agent)) == sent
    assert await sent_by(reloaded(reloaded(agent))) == sent


def test_ce20_a_subclass_is_dumped_as_itself(tmp_path: Path) -> None:
    dumped = LoudCoder("coder", LocalCodeExecutor(work_dir=tmp_path), model_client=replay()).dump_component()
    assert dumped.provider == "tests.agents.helpers.LoudCoder"
    assert type(CodeExecutorAgent.load_component(dumped)) is LoudCoder


def test_ce20_a_subclass_of_the_reviewer_is_dumped_as_itself() -> None:
    dumped = LoudReviewer("reviewer", replay()).dump_component()
    assert dumped.provider == "tests.agents.helpers.LoudReviewer"
    assert type(ReviewerAgent.load_component(dumped)) is LoudReviewer


def test_ce20_the_class_itself_is_dumped_on_its_public_path(tmp_path: Path) -> None:
    dumped = CodeExecutorAgent("coder", LocalCodeExecutor(work_dir=tmp_path)).dump_component()
    assert dumped.provider == "coderoom.agents.CodeExecutorAgent"
    assert dumped.component_type == "agent"

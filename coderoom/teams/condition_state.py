"""Saving what termination conditions have counted: ours, AutoGen's, and combinations of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.messages import StopMessage

from coderoom._util.autogen import CONDITIONS, COUNTERS, STOP_MESSAGES
from coderoom.teams.conditions import StatefulCondition

__all__ = ["load_condition_state", "save_condition_state"]


def save_condition_state(condition: TerminationCondition) -> dict[str, Any]:
    """What `condition`, and all that it combines, have counted, as JSON-like data."""
    state: dict[str, Any] = {"condition": type(condition).__name__}
    if isinstance(condition, StatefulCondition):
        state["own"] = condition.save_state()
        return state
    state["counters"] = {name: getattr(condition, name) for name in COUNTERS if hasattr(condition, name)}
    children = _children(condition)
    if children:
        state["conditions"] = [save_condition_state(child) for child in children]
        state["stop_messages"] = [message.dump() for message in getattr(condition, STOP_MESSAGES, [])]
    return state


def load_condition_state(condition: TerminationCondition, state: Mapping[str, Any]) -> None:
    """Restore what `save_condition_state` gave. A state of another kind of condition is passed over."""
    if state.get("condition") != type(condition).__name__:
        return
    if isinstance(condition, StatefulCondition):
        condition.load_state(state.get("own", {}))
        return
    for name, value in state.get("counters", {}).items():
        if name in COUNTERS and hasattr(condition, name):
            setattr(condition, name, value)
    for child, child_state in zip(_children(condition), state.get("conditions", ()), strict=False):
        load_condition_state(child, child_state)
    if hasattr(condition, STOP_MESSAGES):
        setattr(condition, STOP_MESSAGES, [StopMessage.load(data) for data in state.get("stop_messages", ())])


def _children(condition: TerminationCondition) -> list[TerminationCondition]:
    return [child for child in getattr(condition, CONDITIONS, ()) if isinstance(child, TerminationCondition)]

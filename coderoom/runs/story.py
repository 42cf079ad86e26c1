"""Reads a run back from the journal: as records, which are shown as they were, and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MessageFactory, TextMessage

from coderoom._util.steps import CODE, MODEL
from coderoom.runs.journal import Journal, RunEntry, Step
from coderoom.runs.record import RunRecord
from coderoom.runs.run_log import MESSAGE, TASK, conversations

_FACTS: Final = ("isolation", "stop_reason", "error", "seconds", "notices", "models")


def read_records(journal: Journal, entry: RunEntry) -> list[RunRecord]:
    """The tasks of a run of a team, as the records that they were."""
    records: list[RunRecord] = []
    for step in journal.steps(entry.id):
        if step.kind == TASK:
            records.append(RunRecord(entry.name, step.result["task"], entry.model, entry.id))
        elif step.kind == MESSAGE and records:
            records[-1].add(_message(step.result))
    if records:
        last, facts = records[-1], entry.facts
        for name in _FACTS:
            setattr(last, name, facts.get(name, getattr(last, name)))
        last.files = [Path(file) for file in facts.get("files", ())]
        last.cancelled = entry.outcome == "cancelled"
        last.limit = facts.get("limit", "")
        last.runs_code = entry.outcome != "ok" or last.attempts > 0
    return records


def read_steps(journal: Journal, entry: RunEntry) -> dict[str, Any]:
    """A run with all its steps, as plain data, in which each request has its whole conversation."""
    steps = list(journal.steps(entry.id))
    asked = conversations(steps)
    return {
        **summary(entry),
        "request": dict(entry.request),
        "steps": [_plain(journal, entry, step, asked) for step in steps],
    }


def lines_of(journal: Journal, entry: RunEntry) -> list[str]:
    """What is said and done in a run, line by line, to compare it with another one."""
    lines = [f"outcome: {entry.state}"]
    for step in journal.steps(entry.id):
        if step.kind == MESSAGE:
            text = _message(step.result).to_text()
        elif step.kind in (TASK, "event"):
            text = str(step.result.get("task") or step.result.get("text"))
        elif step.kind == CODE and "code" in step.result:  # Of a file, which has no messages.
            text = f"{step.result['code']}\n{step.result['output']}"
        else:
            continue
        lines += [f"{step.actor or step.kind}:", *(f"  {line}" for line in text.splitlines())]
    return lines


def summary(entry: RunEntry) -> dict[str, Any]:
    """A run without its steps, as plain data."""
    facts = {name: value for name, value in asdict(entry).items() if name not in ("request", "owner")}
    return {**facts, "state": entry.state}


def _plain(journal: Journal, entry: RunEntry, step: Step, asked: Mapping[int, list[str]]) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(step).items() if name != "key"}
    if step.kind == MODEL:
        texts = [journal.content(entry.id, name).decode("utf-8", "replace") for name in asked[step.number]]
        facts["request"] = {**step.request, "messages": texts}
    return facts


def _message(data: Mapping[str, Any]) -> BaseAgentEvent | BaseChatMessage:
    try:
        return MessageFactory().create(data)
    except ValueError:  # A type of another package.
        return TextMessage(content=str(data.get("content", "")), source=str(data.get("source", "")))

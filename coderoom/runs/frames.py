"""Runs and their steps as data frames of pandas. Used by `Journal.runs_frame` and `Journal.steps_frame`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from coderoom._util.distribution import install_command
from coderoom.errors import MissingDependencyError

if TYPE_CHECKING:
    import pandas

_RUN_COLUMNS: Final = (
    "id", "command", "team", "task", "model", "started", "ended", "outcome", "seconds", "prompt_tokens",
    "completion_tokens", "cost_usd", "turns", "attempts", "answer", "error",
)  # fmt: skip
_STEP_COLUMNS: Final = (
    "number", "kind", "actor", "at", "seconds", "outcome", "prompt_tokens", "completion_tokens", "code", "text",
)  # fmt: skip
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "turns", "attempts")


def runs_frame(runs: Iterable[Any]) -> pandas.DataFrame:
    """A row for each `RunEntry`."""
    rows = []
    for run in runs:
        whole = run.facts.get("whole") or {}  # Of several tasks.
        facts, usage = {**run.facts, **whole}, whole or run.facts.get("usage") or {}
        used = [usage.get(name) for name in _COUNTS[:2]]
        about = [facts.get(name) for name in ("cost_usd", "turns", "attempts", "answer", "error")]
        models = run.model or ", ".join(sorted(set((facts.get("models") or {}).values()))) or None
        times = run.started, run.ended, run.state, facts.get("seconds")
        rows.append((run.id, run.command, run.name, run.task, models, *times, *used, *about))
    return _frame(rows, _RUN_COLUMNS, ("started", "ended"))


def steps_frame(steps: Iterable[Any]) -> pandas.DataFrame:
    """A row for each `Step`."""
    rows = []
    for step in steps:
        result = step.result if isinstance(step.result, Mapping) else {}
        request = step.request if isinstance(step.request, Mapping) else {}
        usage = result.get("usage") or {}
        code = "\n\n".join(str(code) for _, code in request.get("blocks") or ())
        texts = (result.get(name) for name in ("output", "content", "task"))
        text = next((each for each in texts if isinstance(each, str)), None)
        used = [usage.get(name) for name in _COUNTS[:2]]
        about = step.number, step.kind, step.actor, step.at, step.seconds, result.get("outcome")
        rows.append((*about, *used, code or None, text))
    return _frame(rows, _STEP_COLUMNS, ("at",))


def _frame(rows: list[tuple[Any, ...]], columns: tuple[str, ...], times: tuple[str, ...]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise MissingDependencyError(
            f"Data frames need pandas, which is not installed: {install_command('plots')}"
        ) from error
    frame = pandas.DataFrame(rows, columns=list(columns))
    for name in times:
        frame[name] = pandas.to_datetime(frame[name].astype("float64"), unit="s", utc=True)
    for name in {*_COUNTS} & {*columns}:
        frame[name] = frame[name].astype("Int64")  # With missing values.
    for name in {"seconds", "cost_usd"} & {*columns}:
        frame[name] = frame[name].astype("float64")
    return frame

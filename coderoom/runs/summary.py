"""How runs, and the tasks of a chat, have ended: what the terminal shows last. Used by `RunView`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from coderoom._util.autogen import AFTER_ONE_TURN, is_at_its_turns
from coderoom._util.text import counted, in_dollars, visible
from coderoom.models.budgets import RUN
from coderoom.runs.durable import GO_ON
from coderoom.runs.exec_view import NO_CODE_IS_RUN
from coderoom.runs.markdown import markdown
from coderoom.runs.pictures import linked
from coderoom.runs.record import NO_CODE, UNFINISHED, RunRecord, network_words, output_beside

_OUTPUT_LINES: Final = 40
_Rows = dict[str, str | Text | None]


def task_summary(record: RunRecord) -> RenderableType:
    """How a task of a chat has ended: in a line, since its answer was just shown, and what else there is to know."""
    usage, answered = record.usage, record.outcome == NO_CODE and record.error is None
    facts = [
        counted(record.attempts, "run") + " of code" if record.attempts else "",
        f"{usage['total_tokens']:,} tokens" if usage["total_tokens"] else "",
        "" if record.cost is None else in_dollars(record.cost),
        f"{record.seconds:.1f} s",
    ]
    style = "bold green" if record.succeeded else "bold" if answered else "bold red"
    outcome = "no code ran" if answered else record.outcome
    line = Text.assemble((visible(outcome), style), (" · ".join(["", *filter(None, facts)]), "dim"))
    rows = {**({} if record.succeeded or answered else _why(record)), **_changed(record)}
    return Group(line, _table(rows)) if any(rows.values()) else line


def run_summary(record: RunRecord, *, with_answer: bool) -> RenderableType:
    """How a run has ended.

    Args:
        record: What is known of it.
        with_answer: Whether its answer is shown, too.
    """
    usage = record.usage
    tokens = [f"{usage['total_tokens']:,} ({usage['prompt_tokens']:,} in, {usage['completion_tokens']:,} out)"]
    if len(record.usage_by_agent) > 1:
        for agent, each in record.usage_by_agent.items():
            cost = record.cost_by_agent.get(agent)
            tokens.append(f"{each['total_tokens']:,} by {agent}{'' if cost is None else f', {in_dollars(cost)}'}")
    go_on = None
    if record.run and record.outcome in GO_ON:
        larger, reached = "", record.reached  # The option that raises the limit at which it ended.
        if reached is not None:
            options = {"seconds": "--max-seconds", "tokens": "--max-tokens"} if reached.owner == RUN else {}
            larger = options.get(reached.limit, "--budget")
        elif record.outcome == UNFINISHED and is_at_its_turns(record.stop_reason):
            larger = "--max-turns"
        go_on = f"coderoom resume {record.run}{larger and f', with a larger {larger}'}"
    runs_code = record.isolation != NO_CODE_IS_RUN
    rows = {
        "outcome": record.outcome,
        **_why(record),
        "turns": f"{record.turns:,}" + (f", with {counted(record.attempts, 'run')} of code" if runs_code else ""),
        "tokens": "\n".join(tokens) if usage["total_tokens"] else None,
        "cost": None if record.cost is None else in_dollars(record.cost),
        "time": f"{record.seconds:.1f} s",
        "run": record.run,
        "go on": go_on,
        **_changed(record, "none written" if runs_code else ""),
    }
    table = _table(rows, {"outcome": "bold green" if record.succeeded else "bold red"})
    if not record.succeeded or not record.answer or not with_answer:
        return table
    is_short = record.answer.count("\n") <= _OUTPUT_LINES
    answer = markdown(record.answer) if is_short else bounded(record.answer)
    panels = [Panel(answer, title="answer", title_align="left", border_style="green")]
    if output := output_beside(record.answer, record.output):
        panels.append(Panel(bounded(output), title="output", title_align="left", border_style="dim"))
    return Group(*panels, table)


def _why(record: RunRecord) -> _Rows:
    stop_reason = None if record.stop_reason == AFTER_ONE_TURN else record.stop_reason
    return {
        "error": record.error,
        "stopped": (record.why_unfinished or stop_reason) if record.error is None else None,
        "gave up": record.why_failed,
    }


def _changed(record: RunRecord, none: str = "") -> _Rows:
    return {
        "files": linked(record.files, short_path, "\n") if record.files else none,
        "changes": None if record.reviewed is None else str(record.reviewed),
        "network": network_words(record.network),
    }


def _table(rows: _Rows, styles: Mapping[str, str] = MappingProxyType({})) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in rows.items():
        if value:
            words = Text(visible(value), style=styles.get(name, "")) if isinstance(value, str) else value
            table.add_row(name, words)
    return table


def short_path(path: Path) -> str:
    """A path as seen from the current folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def bounded(output: str, whole: str | None = None) -> Text:
    """The beginning and the end of an output; `whole` is the file that has more of it."""
    lines = visible(output).rstrip("\n").split("\n")
    half = _OUTPUT_LINES // 2
    if len(lines) > _OUTPUT_LINES + 1:
        # The agent's own output may be incomplete already.
        left_out = f"{len(lines) - 2 * half} lines are" if whole is None else "lines are"
        lines = [*lines[:half], f"… {left_out} not shown …", *lines[-half:]]
    if whole is not None:
        lines.append(f"(more of the output is in {visible(short_path(Path(whole)))})")
    text = "\n".join(lines)
    return Text(text) if text.strip() else Text("(no output)", style="dim")

"""How runs show themselves in notebooks. Used by `RunEntry` and `RunRecord`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from coderoom._util.html import lines_html, shown_html
from coderoom._util.text import in_dollars


def run_html(task: str, state: str, name: str, facts: Mapping[str, Any], started: float | None = None) -> str:
    """A run as HTML.

    Args:
        task: The task.
        state: How it has ended, or that it goes on.
        name: The team or the file.
        facts: Its record, as plain data.
        started: When it began, in seconds since the epoch; `None` if that is not known.
    """
    usage, cost = facts.get("usage") or {}, facts.get("cost_usd")
    tokens = sum(usage.get(each, 0) for each in ("prompt_tokens", "completion_tokens"))
    about = {
        "": state,
        "by": name,
        "began": "" if started is None else f"{datetime.fromtimestamp(started).astimezone():%Y-%m-%d %H:%M:%S}",
        "took": f"{facts['seconds']:.1f} s" if facts.get("seconds") else "",
        "tokens": f"{tokens:,}" if tokens else "",
        "cost": in_dollars(cost) if cost else "",
        "attempts": facts.get("attempts") or "",
        "id": facts.get("run"),
    }
    success = None if state == "running" else state == "ok"
    failed = str(facts.get("error") or facts.get("limit") or "")
    # An answer may be the output of the code.
    answer, output = (str(facts.get(each) or "") for each in ("answer", "output"))
    more = lines_html(output, "output") if output.strip() != answer.strip() else ""
    return shown_html(" ".join(task.split()) or name, success, about, lines_html(failed), lines_html(answer), more)

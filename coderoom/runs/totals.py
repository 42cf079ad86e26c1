"""What a run with several tasks has used in all of them: the record that ends it knows only its last task.

Used by the journal, which keeps it among the facts of the run as `whole`.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable
from typing import Any

_ATTEMPTS = """
    SELECT SUM(iif(
        kind = 'code', json_extract(result, '$.outcome') IS NULL,
        json_extract(result, '$.type') = 'CodeExecutionEvent'
        AND json_extract(result, '$.metadata."coderoom.outcome"') IS NOT NULL
        AND IFNULL(json_extract(result, '$.metadata."coderoom.ran"'), '') != 'false'
    )) FROM (SELECT kind, iif(json_valid(result), result, '{}') AS result FROM steps WHERE run = ?)
    WHERE kind IN ('code', 'message')
"""
"""How often code ran: events, and code of agents that report none, which `RunFacts` counts alike."""
_TOKENS = """
    SELECT IFNULL(json_extract(request, '$.priced_as'), ''), SUM(json_extract(result, '$.usage.prompt_tokens')),
        SUM(json_extract(result, '$.usage.completion_tokens'))
    FROM steps WHERE run = ? AND kind = 'model' GROUP BY 1
"""
_TIMES = """
    SELECT at - seconds, at FROM steps WHERE run = ?1 AND seconds > 0
    UNION ALL
    SELECT before, at FROM (SELECT kind, result, at, LAG(at) OVER (ORDER BY number) AS before FROM steps WHERE run = ?1)
    WHERE kind = 'message' AND json_valid(result)
        AND json_extract(result, '$.metadata."coderoom.outcome"') = 'cancelled'
    ORDER BY 1
"""
"""When something was done. Of code that was cancelled there is no step but the message that says so."""


def totals_of(database: sqlite3.Connection, run: str) -> dict[str, Any]:
    """The number of tasks of a run, and what all of them have used; empty if it has one at most.

    The time is that in which something was done: between tasks, a chat waits.
    """
    (tasks,) = database.execute("SELECT COUNT(*) FROM steps WHERE run = ? AND kind = 'task'", (run,)).fetchone()
    if tasks < 2:
        return {}
    from coderoom.models.prices import cost_of  # Only chats need it.

    used = database.execute(_TOKENS, (run,)).fetchall()
    costs = [cost_of(model, prompt, completion) for model, prompt, completion in used if prompt or completion]
    known = [cost for cost in costs if cost is not None]
    (attempts,) = database.execute(_ATTEMPTS, (run,)).fetchone()
    return {
        "tasks": tasks,
        "attempts": attempts or 0,
        "prompt_tokens": sum(prompt for _, prompt, _ in used),
        "completion_tokens": sum(completion for _, _, completion in used),
        "cost_usd": sum(known) if known and len(known) == len(costs) else None,
        "seconds": seconds_of(database, run),
    }


def seconds_of(database: sqlite3.Connection, run: str) -> float:
    """The time in which something was done, in all processes that have worked on the run."""
    return round(covered(database.execute(_TIMES, (run,))), 3)


def covered(times: Iterable[tuple[float, float]]) -> float:
    """The time that intervals cover together, which are sorted by their beginnings."""
    seconds, until = 0.0, -math.inf
    for begin, end in times:
        seconds += max(0.0, end - max(begin, until))
        until = max(until, end)
    return seconds

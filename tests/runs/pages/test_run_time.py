"""The time line of a run."""

from __future__ import annotations

from coderoom.runs.journal import RunEntry, Step
from coderoom.runs.pages.run_time import time_html


def test_time_in_which_no_step_is_done_is_told() -> None:
    """As the installation of packages before the first one; steps at the same time count once."""
    steps = [
        Step(1, "model", "coder", "", 12.0, 2.0, {}, {}),
        Step(2, "code", "coder", "", 14.0, 3.0, {}, {}),
        Step(3, "model", "coder", "", 17.5, 2.5, {}, {}),
    ]
    entry = RunEntry("a", "run", "code-act", "Add.", None, 5.0, 17.5, "ok", None, {})
    page = time_html(steps, entry, [1, 2, 3])
    assert "model 4.5 s" in page
    assert "none of these 6.0 s" in page
    assert 'data-seconds="12.500"' in page

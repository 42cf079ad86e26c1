"""What the report of `coderoom fix` shows of names that a repository or a patch has chosen."""

from __future__ import annotations

from typing import Any, cast

from coderoom.runs.fix import Fixed, Tally


def test_names_of_files_and_tests_cannot_forge_lines_of_the_report() -> None:
    forged = "x\n2 failed -> 9 passed\x1b[2J"
    fixed = Fixed(
        cast(Any, None),
        Tally(1, 1),
        Tally(1, 1),
        tests_changed=[f"added {forged}"],
        problems=[f"fails: {forged}"],
        left_out=[f"{forged}: git ignores it"],
        changes=[f"added {forged}"],
    )
    lines = str(fixed).splitlines()
    assert len(lines) == 7
    assert not any(line.startswith("2 failed") or "\x1b" in line for line in lines)

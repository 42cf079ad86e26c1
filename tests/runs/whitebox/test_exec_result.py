"""What came of a file, as facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coderoom.blocks import Block, extract_code_blocks
from coderoom.outcome import Outcome
from coderoom.runs.exec_result import BlockRun, FileResult, without_state
from coderoom.runs.exec_source import Source
from coderoom.sandbox import CodeError

BLOCKS = extract_code_blocks("```python\n1\n```\n\n```python\n2\n```\n\n```json\n{}\n```\n")


def run_of(block: Block, outcome: Outcome = Outcome.OK, **facts: Any) -> BlockRun:
    return BlockRun(1, block, outcome, int(outcome is not Outcome.OK), "out", 0.12345, **facts)


@pytest.mark.parametrize(
    ("outcomes", "facts", "succeeded", "outcome"),
    [
        ([], {}, False, "no_code"),
        ([Outcome.OK], {}, False, "ok"),
        ([Outcome.OK, Outcome.OK], {}, True, "ok"),
        ([Outcome.OK, Outcome.ERROR], {}, False, "error"),
        ([Outcome.OK], {"cancelled": True}, False, "cancelled"),
        ([Outcome.OK], {"broke": True, "cancelled": True}, False, "failed"),
    ],
)
def test_how_a_file_has_ended(outcomes: list[Outcome], facts: Any, succeeded: bool, outcome: str) -> None:
    runs = [run_of(block, each) for block, each in zip(BLOCKS, outcomes, strict=False)]
    result = FileResult(Source("a.md", "markdown", BLOCKS[:2], BLOCKS[2:]), Path(), runs=runs, **facts)
    assert (result.succeeded, result.outcome) == (succeeded, outcome)
    told = result.to_json()
    assert (told["succeeded"], told["blocks"], len(told["runs"])) == (succeeded, 2, len(runs))
    assert told["skipped"] == [{"line": 9, "language": "json"}]
    assert not {"lock", "review"} & told.keys()


def test_a_block_as_facts() -> None:
    error = CodeError("Timeout", "It took too long. The session was restarted: earlier variables are gone.")
    run = run_of(BLOCKS[1], Outcome.TIMEOUT, error=error, place="a.md:6")
    told = run.to_json(in_notebook=False)
    assert (told["line"], told["cell"], told["seconds"], told["outcome"]) == (5, None, 0.123, "timeout")
    assert told["error"] == {"type": "Timeout", "message": "It took too long.", "place": "a.md:6"}
    told = run_of(BLOCKS[1]).to_json(in_notebook=True)
    assert (told["line"], told["cell"], told["error"]) == (None, 5, None)
    assert without_state("A. Variables that were set before are still there.") == "A."

"""The judge in a sandbox of a server."""

from __future__ import annotations

import pytest

from coderoom.judge import Judge, TestCode, TestFiles
from tests.support.sandbox_server import shared_server

from .examples import frozen, test_of

RIGHT, WRONG = "def order(items):\n    return sorted(items)\n", "def order(items):\n    return items\n"
# It takes what the test expects from the test's own frame, or any other way.
CHEAT = "class Equal:\n    def __eq__(self, other): return True\n\ndef order(items):\n    return Equal()\n"


@pytest.mark.slow
async def test_verdicts_of_all_kinds_of_tests() -> None:
    cases = frozen("order", test_of(kind="normal", inputs={"items": [2, 1]}, expected_output=[1, 2]))
    code = TestCode(test="def check(candidate):\n    assert candidate([2, 1]) == [1, 2]\n", entry_point="order")
    test = "from solution import order\n\ndef test_order():\n    assert order([2, 1]) == [1, 2]\n"
    # Its own sandboxes have imported what runs tests; else each session does, and it would yield to all that computes.
    async with Judge(options={"engine": "remote", "options": shared_server()}, timeout=30) as judge:
        for source, passes in ((RIGHT, True), (WRONG, False), (CHEAT, False)):
            files = {"solution.py": source}
            found = [
                *await judge.run({"order": source}, cases),
                *await judge.run(files, code),
                *await judge.run(files, TestFiles(files={"test_order.py": test})),
            ]
            assert [verdict.passed for verdict in found] == [passes] * 3, found

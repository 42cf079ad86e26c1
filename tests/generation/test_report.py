from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from coderoom.generation import (
    Attempt,
    FunctionReport,
    SecurityFinding,
    StopReason,
    TestResult,
    changed,
    freeze,
    report_markdown,
)
from coderoom.outcome import Outcome

from .examples import test_of
from .solutions import solution_of

EVIL = (
    "# forged\n\n## forged | forged | <script>forged</script>\n```\n````text\n~~~\n---\n===\n| a | b |\n|---|---|\n"
    "<!-- forged\n<b>forged</b> `forged` **forged** [forged](http://x) ![forged](y) &lt; \\\n\r- forged\u202e\x1b[31m"
)


def shape(text: str) -> list[str]:
    """What a report is made of, whatever its text."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inside = [child for token in tokens for child in token.children or ()]
    return [each.type for each in (*tokens, *inside) if each.type not in ("text", "text_special")]


def evil_report(text: str) -> str:
    before = test_of(text, inputs={"x": text}, expected_output=text)
    after = test_of(
        text,
        inputs={"x": text},
        expected_output=1,
        setup=[{"file": "a", "text": "\n```\n# forged\n"}] if "#" in text else [],
    )
    frozen = freeze({"add": [before]})
    change = changed(frozen, "add", text, after, by=text, reason=text).changes
    finding = SecurityFinding(severity="high", confidence="high", id="B1", text=text, line=3)
    attempt = Attempt(number=1, approach="first", code=text, problems=(text,), reason=text)
    result = TestResult(
        function="add", test=text, passed=False, why=text, error=text, stdout=text, outcome=Outcome.ERROR
    )
    report = FunctionReport(
        function="add", passed=False, tests=1, tests_passed=0, attempts=(attempt,), stop_reason=StopReason.ATTEMPTS,
        findings=(finding,),
    )  # fmt: skip
    return report_markdown(
        solution_of(
            tests={"add": [after]}, instruction=text, test_results=(result,), functions=(report,), test_changes=change,
            warnings=(text,), error=text, model=text, all_tests_passed=False,
        )
    )  # fmt: skip


def test_no_text_forges_anything() -> None:
    report = evil_report(EVIL)
    assert shape(report) == shape(evil_report("plain"))
    assert "html" not in " ".join(shape(report))
    assert not re.search("[\x1b\r\u202e]", report)
    assert "line 3" in report


@pytest.mark.parametrize("text", ["- x", "+ x", "=", "1. x", "> x", "`", "a|b", "    x", "~~~", "$x$", "```"])
def test_no_line_begins_anything(text: str) -> None:
    plain = [each for each in shape(evil_report("plain")) if "list" not in each]
    assert [each for each in shape(evil_report(text)) if "list" not in each] == plain


def test_verdicts() -> None:
    tests = {"add": [test_of(str(number), inputs={"x": 1}, expected_output=1) for number in range(14)]}
    assert report_markdown(solution_of()).startswith("# The only test passed.")
    assert report_markdown(solution_of(tests=tests)).startswith("# All 14 tests passed.")
    failed = solution_of(tests=tests, failing={"3": "1 was expected"})
    assert report_markdown(failed).startswith("# 13 of 14 tests passed.")
    # The flag alone says nothing, and neither do the results.
    assert report_markdown(failed.model_copy(update={"all_tests_passed": True})).startswith("# 13 of 14")
    assert "something is missing" in report_markdown(solution_of(tests=tests, all_tests_passed=False))
    assert report_markdown(solution_of(tests=tests, test_results=())).startswith("# 0 of 14")
    assert report_markdown(solution_of(tests={})).startswith("# There are no tests")


def test_everything_is_told() -> None:
    report = report_markdown(solution_of(failing={"sums": "expected 3, got 4"}, cached=True))
    for told in (
        "Add numbers.", "| add | 0/1 | 1 | 250 ms | 125 ms | 11.8 MiB | attempts |", "Attempt 1 (first)",
        "Call: add(x=1, y=2)",
        "Expected: 3", "Why: expected 3, got 4", "3 requests, 1,234 tokens", "1 min 15 s", "from the cache",
    ):  # fmt: skip
        assert told in report

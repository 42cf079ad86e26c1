"""Writes the Markdown report of a solution."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from coderoom._util.text import encodable, visible
from coderoom.generation.frozen_tests import TestChange
from coderoom.generation.solution import FunctionReport, Solution
from coderoom.generation.testing.results import TestResult
from coderoom.generation.testing.values import show
from coderoom.generation.tests import FunctionTest
from coderoom.outcome import Outcome

__all__ = ["in_bytes", "in_seconds", "report_markdown", "verdict"]

_SPECIAL = re.compile(r"[\\`*_\[\]|~$#!@]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LONGEST = 1_000
_LONGEST_BLOCK = 20_000
_COLUMNS = ("Function", "Tests passed", "Attempts", "Time of tests", "Slowest", "Peak memory", "Ended because")


def report_markdown(solution: Solution) -> str:
    """What came of an instruction, as Markdown.

    What models and users wrote stands in it as text: none of it can make a heading, a table, a fence or HTML.
    """
    parts = [f"# {verdict(solution)}", "## Instruction", _block(solution.instruction)]
    parts += _lines("## What is missing", [_inline(line) for line in _missing(solution)])
    parts += _table(solution.functions)
    for report in solution.functions:
        parts += _attempts(report)
    changes = [part for change in solution.test_changes for part in _change(change)]
    parts += ["## Changed tests", *changes] if changes else []
    findings = [
        f"{_inline(report.function)}: {_inline(str(each))}" for report in solution.functions for each in report.findings
    ]
    parts += _lines("## Security findings", findings)
    failing = [part for each in solution.test_results if not each.passed for part in _failure(solution, each)]
    parts += ["## Failing tests", *failing] if failing else []
    parts += _lines("## Warnings", [_inline(each) for each in solution.warnings])
    parts += _lines("## About", _about(solution))
    return "\n\n".join(parts) + "\n"


def verdict(solution: Solution) -> str:
    """What came of it in one line: computed from the results of the tests."""
    passed, count = sum(each.passed for each in solution.test_results), len(solution.test_results)
    expected = max(count, sum(map(len, solution.tests.values())))
    word = "test" if expected == 1 else "tests"
    if not expected:
        return "There are no tests, and so nothing is known to work."
    if passed < expected:
        return f"{passed} of {expected} {word} passed."
    if solution.all_tests_passed:
        return f"All {expected} {word} passed." if expected > 1 else "The only test passed."
    if any(report.only_by_changed_tests for report in solution.functions):
        return f"{passed} of {expected} {word} passed, but only since tests were changed."
    return f"{passed} of {expected} {word} passed, but something is missing."


def in_seconds(seconds: float) -> str:
    """A duration in the unit that fits it."""
    if seconds < 0.0005:
        return "under 1 ms" if seconds > 0 else "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def in_bytes(count: int | None) -> str:
    """A size in the unit that fits it."""
    if count is None:
        return "not known"
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1023.95:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _inline(text: str) -> str:
    """Text of others within a line or a cell: nothing in it is Markdown or HTML."""
    text = visible(encodable(" ".join(text.split())))
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    text = re.sub("[&<>]", lambda found: _ENTITIES[found.group()], text)
    text = _SPECIAL.sub(lambda found: "\\" + found.group(), text)
    return f"\\{text}" if text[:1] in ("-", "+", "=") else text


def _block(text: str, language: str = "text") -> str:
    """Text of others as a block; its fence is longer than any in the text."""
    text = visible(encodable(text)).strip("\n")
    text = text if len(text) <= _LONGEST_BLOCK else text[:_LONGEST_BLOCK] + "\n..."
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _lines(title: str, lines: Iterable[str]) -> list[str]:
    listed = [f"- {line}" for line in lines]
    return [title, "\n".join(listed)] if listed else []


def _missing(solution: Solution) -> list[str]:
    """What is missing, without the tests, which have a place of their own."""
    failing = {f"{each.function}: {each.test}: {each.why}" for each in solution.test_results if not each.passed}
    return [line for line in solution.missing if line not in failing]


def _table(reports: Sequence[FunctionReport]) -> list[str]:
    if not reports:
        return []
    rows = [_COLUMNS, tuple("---" for _ in _COLUMNS)]
    for each in reports:
        ended = each.stop_reason.value.replace("_", " ")
        tests = f"{each.tests_passed}/{each.tests}"
        times = in_seconds(each.seconds), in_seconds(each.slowest)
        rows.append((_inline(each.function), tests, str(len(each.attempts)), *times, in_bytes(each.peak_memory), ended))
    return ["## Functions", "\n".join(f"| {' | '.join(row)} |" for row in rows)]


def _attempts(report: FunctionReport) -> list[str]:
    lines = []
    for each in report.attempts:
        what = f"{each.passed} passed, {each.failed} failed" if not each.problems else "not run"
        lines.append(f"Attempt {each.number} ({_inline(each.approach)}): {what}")
        if each.reason:
            lines[-1] += f"\n  - why: {_inline(each.reason)}"
        lines[-1] += "".join(f"\n  - note: {_inline(note)}" for note in each.notes)
        lines[-1] += "".join(f"\n  - problem: {_inline(problem)}" for problem in each.problems)
    return _lines(f"### Attempts at {_inline(report.function)}", lines)


def _change(change: TestChange) -> list[str]:
    parts = [
        f"### {_inline(change.function)}: {_inline(change.test)}",
        f"Changed by {_inline(change.by)}, because: {_inline(change.reason)}",
    ]
    for word, test in (("Before", change.before), ("After", change.after)):
        told = "There was none." if word == "Before" else "It was removed."
        parts += [f"{word}:", _block(test.model_dump_json(indent=2), "json")] if test else [f"{word}: {told}"]
    return parts


def _failure(solution: Solution, result: TestResult) -> list[str]:
    cases = solution.tests.get(result.function, ())
    test = next((each for each in cases if each.name == result.test), None)
    lines = [f"Why: {_inline(result.why)}"]
    if test is not None:
        given = ", ".join(f"{name}={show(data)}" for name, data in test.inputs.items())
        lines += [f"Call: {_inline(f'{result.function}({given})')}", f"Expected: {_inline(_expected(test))}"]
    if result.outcome is not Outcome.REJECTED:  # It was not run.
        lines.append(f"Came: {_inline(_came(result))}")
        lines += [f"Left in its arguments: {_inline(_left(result))}"] if result.arguments_after is not None else []
        lines.append(f"Ended as: {result.outcome.value}, after {in_seconds(result.duration)}")
    parts = _lines(f"### {_inline(result.function)}: {_inline(result.test)}", lines)
    parts += ["Traceback:", _block(result.error)] if result.error else []
    return [*parts, "Printed:", _block(result.stdout)] if result.stdout else parts


def _came(result: TestResult) -> str:
    if result.error.strip():
        return result.error.strip().splitlines()[-1]
    return show(result.actual_output) if result.outcome is Outcome.OK else "nothing"


def _left(result: TestResult) -> str:
    return ", ".join(f"{name}={show(data)}" for name, data in (result.arguments_after or {}).items())


def _expected(test: FunctionTest) -> str:
    if test.expects == "error":
        more = f" with {test.error_message!r} in its message" if test.error_message else ""
        return f"{test.expected_error}{more}"
    return f"{test.property}" if test.expects == "property" else show(test.expected_output)


def _about(solution: Solution) -> list[str]:
    usage = solution.usage
    tokens = f"{usage.total_tokens:,} tokens ({usage.prompt_tokens:,} asked, {usage.completion_tokens:,} answered)"
    replayed = f"; {usage.replayed:,} answers of an earlier call were taken again" if usage.replayed else ""
    source = "The code comes from the cache; its tests were run again." if solution.cached else "Written anew."
    return [
        source,
        f"Language: {_inline(solution.language)}. Model: {_inline(solution.model) or 'not told'}.",
        f"Ended because: {solution.stop_reason.value.replace('_', ' ')}, after {in_seconds(solution.duration)}.",
        f"Usage: {usage.requests:,} requests, {tokens}{replayed}.",
        *([f"Tests as they were frozen first: sha256 {_inline(solution.tests_hash)}."] if solution.tests_hash else []),
    ]

"""What happens while a solution comes about, as AutoGen's events, and the message at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from autogen_agentchat.messages import (
    BaseAgentEvent,
    CodeExecutionEvent,
    CodeGenerationEvent,
    TextMessage,
    ThoughtEvent,
)
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.models import RequestUsage

from coderoom._util.text import named
from coderoom.agents import metadata as keys
from coderoom.blocks import fence
from coderoom.generation import (
    CacheHit,
    CodeRefused,
    CodeWritten,
    FunctionFinished,
    GenerationEvent,
    Solution,
    SpecsWritten,
    TestChanged,
    TestResult,
    TestsFrozen,
    TestsRun,
    TestsWritten,
    Warned,
)
from coderoom.outcome import Outcome

__all__ = ["event_of", "final_message"]

_MOST_FAILURES = 10
_LONGEST = 1_000


def event_of(source: str, event: GenerationEvent) -> BaseAgentEvent | None:
    """The AutoGen event for something that has happened; `None` for what is of no interest there.

    Code is a `CodeGenerationEvent`, a run of tests a `CodeExecutionEvent`, all else a `ThoughtEvent`, since a team
    refuses types that it does not know.
    """
    if isinstance(event, CodeWritten):
        block = CodeBlock(code=event.code, language=event.language)
        shown = fence(event.code, event.language, "no-run")
        text = f"{event.function}, attempt {event.attempt} ({event.approach}):\n\n{shown}"
        return CodeGenerationEvent(source=source, retry_attempt=event.attempt - 1, content=text, code_blocks=[block])
    if isinstance(event, TestsRun):
        passed = all(result.passed for result in event.results)
        result = CodeResult(exit_code=0 if passed else 1, output=f"{event.function}: {_tests(event.results)}")
        outcome = Outcome.OK if passed else Outcome.ERROR
        facts = {keys.OUTCOME: outcome.value, keys.EXIT_CODE: str(result.exit_code), keys.RAN: "true"}
        return CodeExecutionEvent(source=source, retry_attempt=event.attempt - 1, result=result, metadata=facts)
    words = _words(event)
    return ThoughtEvent(source=source, content=words) if words else None


def final_message(source: str, solution: Solution, files: Sequence[Path]) -> TextMessage:
    """The message of a turn: what passed, the code, and the facts for programs."""
    passed = sum(result.passed for result in solution.test_results)
    total = len(solution.test_results)
    parts = [f"All {total} tests passed."]
    if not solution.all_tests_passed:
        parts = [f"Not done ({solution.stop_reason}): {passed} of {total} tests passed."]
    missing = solution.missing
    if missing:
        listed = [f"- {line[:_LONGEST]}" for line in missing[:_MOST_FAILURES]]
        more = [f"- ... and {len(missing) - _MOST_FAILURES} more"] if len(missing) > _MOST_FAILURES else []
        parts.append("\n".join([*listed, *more]))
    parts += [
        f"The test {change.test!r} of {change.function} was changed: {change.reason}"
        for change in solution.test_changes
    ]
    if solution.implementations:
        code = "\n\n\n".join(each.strip("\n") for each in solution.implementations.values())
        parts.append(fence(code, solution.language, "no-run"))
    if solution.tests:
        names = [f"{name}: {', '.join(test.name for test in tests)}" for name, tests in solution.tests.items()]
        parts.append("Tests:\n" + "\n".join(f"- {line[:_LONGEST]}" for line in names))
    if files:
        parts.append("Files: " + ", ".join(named(path.name) for path in files))
    usage = RequestUsage(prompt_tokens=solution.usage.prompt_tokens, completion_tokens=solution.usage.completion_tokens)
    return TextMessage(source=source, content="\n\n".join(parts), models_usage=usage, metadata=_facts(solution))


def _facts(solution: Solution) -> dict[str, str]:
    outcome = Outcome.OK if solution.all_tests_passed else Outcome.ERROR
    found = {
        keys.OUTCOME: outcome.value,
        keys.EXIT_CODE: "0" if solution.all_tests_passed else "1",
        keys.RAN: str(bool(solution.test_results)).lower(),
        keys.ATTEMPTS: str(sum(len(report.attempts) for report in solution.functions)),
        keys.STOP_REASON: solution.stop_reason.value,
        keys.SUMMARY: "",
    }
    if not solution.all_tests_passed:
        told = "\n".join([*solution.implementations.values(), *solution.missing])
        found[keys.FAILURE] = hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()
    return found


def _tests(results: Sequence[TestResult]) -> str:
    passed = sum(result.passed for result in results)
    lines = [f"{passed} of {len(results)} tests passed"]
    failed = [result for result in results if not result.passed]
    lines += [f"{each.test}: {each.why}"[:_LONGEST] for each in failed[:_MOST_FAILURES]]
    return "\n".join(lines)


def _words(event: GenerationEvent) -> str:
    if isinstance(event, SpecsWritten):
        specs = [spec for layer in event.layers for spec in layer]
        return "Functions:\n" + "\n".join(f"- {spec.name}: {spec.purpose[:_LONGEST]}" for spec in specs)
    if isinstance(event, TestsWritten):
        return f"Tests of {event.function}:\n" + "\n".join(f"- {test.name}" for test in event.tests)
    if isinstance(event, TestsFrozen):
        return f"{event.tests.count} tests are frozen, sha256 {event.tests.hash}."
    if isinstance(event, CodeRefused):
        return f"{event.function}, attempt {event.attempt}, was not run: {'; '.join(event.problems)[:_LONGEST]}"
    if isinstance(event, TestChanged):
        change = event.change
        return f"The test {change.test!r} of {change.function} was changed: {change.reason}"
    if isinstance(event, FunctionFinished) and not event.report.passed:
        return f"{event.report.function} was given up: {event.report.stop_reason}."
    if isinstance(event, CacheHit):
        return f"Found in the cache: {', '.join(event.functions)}. Its tests are run again."
    return event.text if isinstance(event, Warned) else ""

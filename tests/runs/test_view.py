from __future__ import annotations

import io
import re
from typing import Any

import hypothesis.strategies as st
import pytest
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_core.code_executor import CodeResult
from hypothesis import given
from rich.console import Console

from coderoom.errors import BudgetExceeded
from coderoom.runs import RunRecord, RunView


def shown(
    *messages: BaseAgentEvent | BaseChatMessage,
    terminal: bool = False,
    isolation: str = "x",
    model: str | None = None,
    asks: frozenset[str] = frozenset(),
) -> str:
    out = io.StringIO()
    view = RunView(Console(file=out, width=100, force_terminal=terminal, legacy_windows=False))
    record = RunRecord(team="t", task="x", model=model, isolation=isolation, asks=asks)
    view.begin(record)
    for message in messages:
        record.add(message)
        view.show(message)
    view.end(record)
    return out.getvalue()


def execution(output: str, exit_code: int = 0, outcome: str = "ok") -> CodeExecutionEvent:
    metadata = {"coderoom.outcome": outcome, "coderoom.exit_code": str(exit_code)}
    result = CodeResult(exit_code=exit_code, output=output)
    return CodeExecutionEvent(source="coder", retry_attempt=0, result=result, metadata=metadata)


def characters(text: str) -> str:
    """The text without white space and the borders of panels."""
    return "".join(text.replace("│", "").split())


# What is a character of its own on a terminal: no white space, controls or parts of characters, and no border. Fillers
# are shown by their numbers.
PLAIN = st.characters(
    codec="utf-8", exclude_categories=("C", "M", "Z"), exclude_characters="│\u115f\u1160\u2800\u3164\uffa0"
)
TEXTS = st.lists(st.text(PLAIN | st.sampled_from(" \t\\`*_#<>&[]"), max_size=200), max_size=30).map("\n".join)
PROSE = (
    "vector<int>", "<module>", "<b>bold</b>", "C:\\new\\_test", "&lt;&amp;", "[a](http://b)", "[x]: y", "<http://a.b/>",
    "![i](j)", "a < b > c", "{x!r}", "<!-- no -->", '  File "<string>", line 1, in <module>', "<script>\n</script>",
    "2*3*4 = 24", "__init__", "**bold** *it*", "~~a~~", "5. five", "7. seven", "- x", "* y", "a\n---",
    "| a |\n|-|\n| 1 | 2 |",
)  # fmt: skip


@given(TEXTS)
def test_every_character_of_a_task_and_of_output_is_shown(text: str) -> None:
    task = TextMessage(source="user", content=text)
    assert characters(text) in characters(shown(task))
    assert characters(text) in characters(shown(execution(text)))


@given(st.lists(st.sampled_from(PROSE), max_size=10).map("\n".join))
def test_what_looks_like_html_or_an_escape_is_text_in_prose(text: str) -> None:
    lines = shown(TextMessage(source="coder", content=text))
    assert characters(text) in characters(lines)
    assert {line.strip() for line in text.splitlines()} <= {line.strip() for line in lines.splitlines()}


@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    return 1 / 0',
        "So:\n\n<execute>\n# Sum\nfor i in [1]:\n    if i:\n        print(i)\n\n    # end\n</execute>",
    ],
)
def test_a_traceback_and_code_in_tags_keep_their_indentation(text: str) -> None:
    lines = shown(TextMessage(source="coder", content=text)).splitlines()
    assert text in "\n".join(line.rstrip() for line in lines)


HOSTILE = "\x1b[2J\x1b]0;title\x07[bold red]markup[/bold red] \x9b31m"


def test_terminal_codes_and_markup_are_shown_and_not_obeyed() -> None:
    code = CodeGenerationEvent(source="coder", retry_attempt=0, content=HOSTILE, code_blocks=[])
    text = shown(
        execution(HOSTILE), code, TextMessage(source="x", content=HOSTILE), isolation=HOSTILE, model=f"replay:{HOSTILE}"
    )
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\x9b" not in text
    assert text.count("[bold red]markup[/bold red]") >= 3


@pytest.mark.parametrize(
    ("isolation", "said"),
    [
        ("none", "Code is not isolated"),
        ("bubblewrap", "Code is isolated from this machine by: bubblewrap\n"),
        ("no code is run", "─"),
    ],
)
def test_the_first_line_says_what_protects_this_machine(isolation: str, said: str) -> None:
    assert shown(isolation=isolation).startswith(said)


def test_the_report_after_a_run_is_not_shown_twice() -> None:
    final = TextMessage(
        source="coder",
        content="It is 42.\n\nAttempt 1: ok …",
        metadata={"coderoom.outcome": "ok", "coderoom.stop_reason": "success", "coderoom.summary": "It is 42."},
    )
    text = shown(execution("42"), final)
    assert "Attempt 1" not in text
    assert "It is 42." in text
    assert text.count("│ 42 ") == 2  # Where the code ran, and beside the answer.
    assert shown(execution("It is 42.\n"), final).count("│ It is 42. ") == 2


def test_code_in_a_summary_is_said_not_to_have_run() -> None:
    summary = "This would work:\n```python\nprint(1)\n```"
    facts = {"coderoom.outcome": "ok", "coderoom.stop_reason": "success", "coderoom.summary": summary}
    text = shown(execution("42"), TextMessage(source="coder", content=summary, metadata=facts))
    assert "The code in this summary was not run." in text
    facts["coderoom.summary"] = "It is 42.\n```json\n{}\n```"
    assert "was not run" not in shown(execution("42"), TextMessage(source="coder", content="", metadata=facts))


def test_an_executors_bare_message_is_not_shown_twice() -> None:
    text = shown(execution("only once"), TextMessage(source="coder", content="only once"))
    # The second time is the answer in the summary.
    assert text.split("─" * 50)[0].count("only once") <= 1


@pytest.mark.parametrize("asks", [frozenset(), frozenset({"coder"})])
def test_a_retry_looks_the_same_whether_a_person_is_asked_or_not(asks: frozenset[str]) -> None:
    facts = {"coderoom.event": "retry_decision", "coderoom.retry": "true"}
    retry = CodeGenerationEvent(
        source="coder", retry_attempt=0, content="Attempt number: 1\nA typo.", code_blocks=[], metadata=facts
    )
    assert "↻ Attempt number: 1\nA typo." in shown(retry, asks=asks)


def test_long_output_is_cut_in_the_middle() -> None:
    text = shown(execution("\n".join(f"line {number}" for number in range(1000))))
    assert "line 0" in text
    assert "line 999" in text
    assert "line 500" not in text
    assert "960 lines are not shown" in text


def test_tokens_stream_on_a_terminal_and_not_into_a_file() -> None:
    chunks = [ModelClientStreamingChunkEvent(source="coder", content=part) for part in ("str", "eamed\x1b[2J")]
    final = TextMessage(source="coder", content="whole")
    ended_early, on_terminal, in_file = (
        shown(*chunks, terminal=True), shown(*chunks, final, terminal=True), shown(*chunks, final)
    )  # fmt: skip
    assert "streamed" in ended_early.split("turns")[0]
    assert "\x1b[2J" not in ended_early
    assert "whole" in on_terminal
    assert "streamed" not in in_file
    assert "whole" in in_file


@pytest.mark.parametrize(
    ("ended", "option"),
    [
        ({"reached": BudgetExceeded("used up", "the run", "seconds")}, "--max-seconds"),
        ({"reached": BudgetExceeded("used up", "the run", "tokens")}, "--max-tokens"),
        ({"reached": BudgetExceeded("used up", "the run", "model_calls")}, "--budget"),
        ({"reached": BudgetExceeded("used up", "agent 'coder'", "tokens")}, "--budget"),
        ({"stop_reason": "Maximum number of turns 2 reached.", "has_reviewer": True}, "--max-turns"),
        ({"error": "No answer.", "stop_reason": "Maximum number of turns 2 reached."}, ""),
    ],
)
def test_how_to_go_on_names_the_option_that_raises_the_limit(ended: dict[str, Any], option: str) -> None:
    out = io.StringIO()
    record = RunRecord(team="t", task="x", run="r", **ended)
    record.add(TextMessage(source="coder", content="1", metadata={"coderoom.outcome": "ok"}))
    RunView(Console(file=out, width=100)).end(record)
    larger = f", with a larger {option}" if option else ""
    assert re.search(rf"^go on +coderoom resume r{larger} *$", out.getvalue(), re.MULTILINE), out.getvalue()

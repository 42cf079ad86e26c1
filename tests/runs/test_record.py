from __future__ import annotations

import pytest
from autogen_agentchat.agents import CodeExecutorAgent as AutoGenAgent
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, ModelClientStreamingChunkEvent, TextMessage
from autogen_core.models import RequestUsage

from coderoom.agents import CodeExecutorAgent
from coderoom.runs import RunRecord
from coderoom.runs.record import RunFacts


def said(source: str, content: str, usage: tuple[int, int] | None = None, **metadata: str) -> TextMessage:
    return TextMessage(
        source=source,
        content=content,
        models_usage=None if usage is None else RequestUsage(*usage),
        metadata={f"coderoom.{key}": value for key, value in metadata.items()},
    )


def record(*messages: BaseAgentEvent | BaseChatMessage, runs_code: bool = True) -> RunRecord:
    made = RunRecord(team="t", task="x", runs_code=runs_code)
    for message in messages:
        made.add(message)
    return made


def test_the_last_attempt_decides() -> None:
    ok, failed = said("a", "out", outcome="ok"), said("a", "bad", outcome="error")
    assert record(failed, ok).outcome == "ok"
    assert record(ok, failed).outcome == "error"
    assert record(failed, ok).succeeded
    assert not record(ok, failed).succeeded


def test_a_verdict_against_it_counts_for_more() -> None:
    ok = said("a", "out", outcome="ok")
    assert record(ok, said("r", "no", approved="false")).outcome == "not_approved"
    assert record(ok, said("r", "no", approved="false"), ok, said("r", "yes", approved="true")).succeeded
    assert record(said("a", "bad", outcome="error"), said("r", "yes", approved="true")).outcome == "error"


def test_words_are_no_success_where_code_should_run() -> None:
    assert record(said("user", "do"), said("a", "done!")).outcome == "no_code"
    assert record(said("user", "do"), said("a", "done!"), runs_code=False).outcome == "ok"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("same_failure", "the same code failed in the same way as before"),
        ("same_code", "the model repeated the same code"),
        ("a reason of somebody else", "a reason of somebody else"),
    ],
)
def test_why_there_was_no_further_attempt_is_said_in_words(reason: str, words: str) -> None:
    assert record(said("a", "bad", outcome="error", stop_reason=reason)).why_failed == words
    assert record(said("a", "out", outcome="ok", stop_reason="succeeded")).why_failed == ""


def test_an_error_and_a_cancel_count_for_most() -> None:
    made = record(said("a", "out", outcome="ok"))
    made.error = "broke"
    assert (made.outcome, made.answer) == ("failed", "")
    made.cancelled = True
    assert made.outcome == "cancelled"


def test_the_answer_is_what_was_said_about_the_run_or_what_it_printed() -> None:
    assert record(said("a", "42\n", outcome="ok"), said("r", "Fine.", approved="true")).answer == "42\n"
    assert record(said("a", "It is 42.\n\nAttempt 1 …", outcome="ok", summary="It is 42.")).answer == "It is 42."
    assert record(said("user", "hi"), said("a", "hello")).answer == "hello"


def test_the_answer_is_a_sentence_that_follows_the_run() -> None:
    ran, sentence = said("executor", "The script ran.\n42\n", outcome="ok"), said("writer", "It is 42. DONE")
    made = record(said("writer", "```python\nprint(42)\n```"), ran, sentence, said("r", "Fine.", approved="true"))
    made.stop_reason = "Text 'DONE' mentioned"
    assert (made.answer, made.outcome) == ("It is 42.", "ok")
    made.add(said("writer", "It is 43. DONE"))
    assert made.answer == "It is 43."
    for more in (said("writer", "DONE"), said("writer", "```python\nprint(43)\n```"), said("user", "Thanks.")):
        made = record(ran, more)
        made.stop_reason = "Text 'DONE' mentioned"
        assert made.answer == ran.content


def test_that_there_was_no_code_is_no_answer() -> None:
    ran, words = said("executor", "3\n", outcome="ok"), said("coder", "There are three rows.")
    none = said("executor", CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE)
    assert CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE == AutoGenAgent.NO_CODE_BLOCKS_FOUND_MESSAGE
    for messages in ([ran, words, none], [words, none]):
        assert record(*messages).answer == words.content


def test_code_that_its_agent_does_not_report_belongs_to_its_next_message_only() -> None:
    made = RunRecord(team="t", task="x")
    RunFacts(made, print).keep("code", {}, {"exit_code": 1, "output": "no"}, 0.0, known=False)
    first, second = made.add(said("", "It failed.")), made.add(said("", "Words."))
    assert first.metadata == {"coderoom.outcome": "error", "coderoom.exit_code": "1"}
    assert second.metadata == {}
    assert (made.outcome, made.output, made.attempts) == ("error", "no", 1)


def test_an_outcome_nobody_knows_is_no_success() -> None:
    assert record(said("a", "out", outcome="splendid")).outcome == "error"


def test_tokens_and_turns_are_counted_once() -> None:
    chunk = ModelClientStreamingChunkEvent(source="a", content="h", models_usage=RequestUsage(9, 9))
    made = record(said("user", "hi"), chunk, said("a", "x", (3, 4)), said("b", "y", (5, 6)))
    assert made.usage == {"prompt_tokens": 8, "completion_tokens": 10, "total_tokens": 18}
    assert {agent: each["total_tokens"] for agent, each in made.usage_by_agent.items()} == {"a": 7, "b": 11}
    assert made.turns == 2
    assert len(made.to_json()["messages"]) == 3

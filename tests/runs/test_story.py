"""What each message of a run tells: the entries that all views render."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, TextMessage, ThoughtEvent
from autogen_core.code_executor import CodeBlock, CodeResult

from coderoom.runs import Step
from coderoom.runs.story import Check, Code, Decision, Output, Story, Summary, Task, Thought, Verdict, Words, tell_steps

PROGRAM = CodeBlock(code="print(42)", language="python")
ENDED = {"coderoom.outcome": "ok", "coderoom.exit_code": "0", "coderoom.stop_reason": "succeeded"}


def code(source: str = "coder", number: int = 1, **more: Any) -> CodeGenerationEvent:
    given = {"content": "I print.", "code_blocks": [PROGRAM], "retry_attempt": number - 1, **more}
    return CodeGenerationEvent(source=source, **given)


def ran(source: str = "coder", exit_code: int = 0, **facts: str) -> CodeExecutionEvent:
    result = CodeResult(exit_code=exit_code, output="42\n")
    metadata = {f"coderoom.{name}": value for name, value in facts.items()}
    return CodeExecutionEvent(source=source, retry_attempt=0, result=result, metadata=metadata)


def text(content: str, source: str = "coder", **facts: str) -> TextMessage:
    return TextMessage(source=source, content=content, metadata=facts)


def test_a_turn_with_code_ends_with_what_is_new() -> None:
    story = Story()
    ended = {**ENDED, "coderoom.summary": "It is 42."}
    told = [story.tell(each) for each in (code(), ran(outcome="ok"), text("It is 42.\n\nAttempt 1: …", **ended))]
    assert told == [
        Code("coder", "I print.", 1, [PROGRAM]),
        Output("coder", "42\n", "ok", 0, is_own=True, facts={"coderoom.outcome": "ok"}),
        Summary("coder", "It is 42.\n\nAttempt 1: …", "It is 42."),
    ]
    # A turn without code is all new.
    assert story.tell(text("No code.", **ended)) == Words("coder", "No code.")


def test_who_wrote_the_code_and_whether_it_ran() -> None:
    story = Story()
    story.tell(code("coder"))
    other, refused = story.tell(ran("executor")), story.tell(ran("coder", 1, ran="false", outcome="rejected"))
    assert isinstance(other, Output)
    assert isinstance(refused, Output)
    assert (other.is_own, other.ran) == (False, True)
    assert (refused.is_own, refused.ran, refused.outcome) == (True, False, "rejected")


def test_a_question_does_not_hide_that_code_has_run() -> None:
    story = Story()
    messages: list[Any] = [code(), ran(), code(number=2), text("Run this code?", **{"coderoom.shown": "question"})]
    end = [story.tell(each) for each in (*messages, text("Ended.", **ENDED))][-1]
    assert end == Summary("coder", "Ended.", "")


def test_agents_of_autogen_say_no_outcome() -> None:
    story = Story()
    failed = story.tell(ran("executor", 1))
    assert isinstance(failed, Output)
    assert failed.outcome == "error"
    # Without a model, the answer is the output.
    facts = {"coderoom.outcome": "error", "coderoom.exit_code": "3"}
    assert Story().tell(text("*a*", "executor", **facts)) == Output("executor", "*a*", "error", 3)


def test_decisions_verdicts_thoughts_and_tasks() -> None:
    story, facts = Story(), {"coderoom.event": "retry_decision", "coderoom.retry": "true"}
    said = "Attempt number: 2\nProposed correction: a typo: here"
    decision = story.tell(code(number=2, content=said, code_blocks=[], metadata=facts))
    assert decision == Decision("coder", said, 2, True, said)  # Of an older journal.
    facts["coderoom.reason"] = "a typo: here"
    decision = story.tell(code(number=2, content=said, code_blocks=[], metadata=facts))
    assert decision == Decision("coder", said, 2, True, "a typo: here")
    assert story.tell(text("Bad.", "reviewer", **{"coderoom.approved": "false"})) == Verdict("reviewer", "Bad.", False)
    assert story.tell(ThoughtEvent(source="coder", content="Hm.")) == Thought("coder", "Hm.", is_event=True)
    assert story.tell(text("Do *it*.", "user")) == Words("user", "Do *it*.", is_prose=False)


def test_the_steps_of_the_journal_tell_the_same_with_files_and_checks() -> None:
    made = [{"name": "a.txt", "size": 1, "media_type": "text/plain", "hash": ""}]
    results: list[tuple[str, Any]] = [
        ("task", {"task": "Print."}),
        ("model", {"text": "…", "usage": {}}),
        ("message", code().model_dump(mode="json")),
        ("code", {"outcome": "ok", "output": "42\n", "artifacts": made}),
        ("message", ran(outcome="ok").model_dump(mode="json")),
        ("message", ran(outcome="ok").model_dump(mode="json")),
        ("message", {"type": "Facts", "source": "coder", "content": {"number": 42}}),
        ("verdict", {"why": "It is 42.", "passed": True}),
    ]
    steps = [Step(at, kind, "", "", 0.0, 0.0, None, result) for at, (kind, result) in enumerate(results, 1)]
    output = Output("coder", "42\n", "ok", 0, is_own=True, facts={"coderoom.outcome": "ok"})
    assert list(tell_steps(steps)) == [
        Task("task", "Print."),
        Code("coder", "I print.", 1, [PROGRAM]),
        Output(**{**vars(output), "files": made}),
        output,
        Words("coder", "{'number': 42}", is_prose=False),
        Check("verdict", "It is 42.", True),
    ]

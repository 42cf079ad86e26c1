"""What the page of a run tells of its steps."""

from __future__ import annotations

import re
from pathlib import Path

from coderoom.runs import Journal, Step
from coderoom.runs.pages.run import run_page


def test_the_outline_leads_to_what_ended_how(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    run = journal.begin("run", "team", "Compute it.", None, {})
    code = [{"language": "python", "code": "41"}]
    messages = [
        {"type": "CodeGenerationEvent", "content": "So.", "code_blocks": code},
        {"type": "CodeExecutionEvent", "result": {"output": "41", "exit_code": 1}},
        {"type": "TextMessage", "content": "Wrong.", "metadata": {"coderoom.approved": "false"}},
        {"type": "TextMessage", "content": "Sure?", "metadata": {"coderoom.shown": "question"}},
    ]
    for number, message in enumerate(messages, 1):
        journal.add(run, Step(number, "message", "coder", "", 0.0, 0.0, None, message))
    journal.add(run, Step(5, "verdict", "", "", 0.0, 0.0, None, {"passed": True, "why": "It is 42."}))
    page = run_page(journal, journal.find(run))
    links = re.findall(r'<a href="#(step-\d)" class="(\w*)" dir="auto">(.*?)</a>', page)
    assert links == [
        ("step-1", "bad", "attempt 1 <small>error</small>"),
        ("step-3", "bad", "not approved"),
        ("step-4", "", "question"),
        ("step-5", "good", "check <small>passed</small>"),
    ]
    assert all(f'id="{place}"' in page for place, _, _ in links)
    journal.close()


def test_turns_of_one_agent_that_follow_each_other_are_told_and_counted_apart(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    run = journal.begin("run", "team", "Compute it.", None, {})
    code = [{"language": "python", "code": "41"}]
    ended = {"coderoom.stop_reason": "max_steps", "coderoom.outcome": "ok"}
    messages = [
        {"type": "CodeGenerationEvent", "content": "So.", "code_blocks": code},
        {"type": "CodeExecutionEvent", "result": {"output": "41", "exit_code": 0}},
        {"type": "TextMessage", "content": "41", "metadata": ended},
    ]
    usage = {"usage": {"prompt_tokens": 10, "completion_tokens": 1}, "content": "So."}
    request = {"model": "gpt-4o", "messages": {"base": 0, "slices": [], "more": []}}
    number = 0
    for _ in range(2):
        number += 1
        journal.add(run, Step(number, "model", "coder", "", 0.0, 0.0, request, usage))
        for message in messages:
            number += 1
            journal.add(run, Step(number, "message", "coder", "", 0.0, 0.0, None, message))
    page = run_page(journal, journal.find(run))
    assert re.findall(r'<h2 id="(turn-\d)"', page) == ["turn-1", "turn-2"]
    assert re.findall(r'href="#(turn-\d)">turn', page) == ["turn-1", "turn-2"]
    journal.close()

"""What a person can do on the page of a run that goes on: stop it, and answer what it asks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from urllib.parse import quote

from coderoom.errors import RequestError
from coderoom.runs.journal import Journal, RunEntry
from coderoom.runs.pages.frame import prose_html


def controls_html(journal: Journal, entry: RunEntry) -> str:
    """The questions of a run and a button that stops it; nothing once it has ended."""
    if entry.state != "running":
        return ""
    place = escape(quote(entry.id, safe=""))
    asked = "".join(
        f'<form method="post" action="{place}/answer" class="card question" aria-labelledby="question-{each.id}">'
        f'<h2 id="question-{each.id}">The run waits for your answer</h2>{prose_html(each.text)}'
        f'<input type="hidden" name="question" value="{each.id}">'
        f'<label for="words-{each.id}">Why, in your words; after a no, the model reads them and tries again</label>'
        f'<textarea id="words-{each.id}" name="words" rows="3" dir="auto"></textarea>'
        '<p><button class="main" name="answer" value="yes">Yes, run it</button> '
        '<button name="answer" value="no">No</button></p></form>'
        for each in journal.questions(entry.id)
    )
    stop = f'<form method="post" action="{place}/stop" class="stop"><button>Stop the run</button></form>'
    return f'<section class="controls" aria-label="Controls">{asked}{stop}</section>'


def act(journal: Journal, entry: RunEntry, what: str, fields: Mapping[str, str]) -> None:
    """Do what a form of the controls asks for: `stop`, or `answer`.

    Raises:
        RequestError: The run has ended, the question is not asked any more, or there is no such form.
    """
    answer, words = fields.get("answer", ""), fields.get("words", "").strip()
    if what == "stop":
        journal.stop(entry.id)
    elif what == "answer" and answer in ("yes", "no") and fields.get("question", "").isdecimal():
        journal.answer(entry.id, int(fields["question"]), f"{answer} because {words}" if words else answer)
    else:
        raise RequestError("There is nothing to do here.")

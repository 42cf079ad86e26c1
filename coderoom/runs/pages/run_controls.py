"""What a person can do on the page of a run that goes on: stop it, and answer what it asks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final
from urllib.parse import quote

from coderoom.errors import RequestError
from coderoom.runs.asked import Question
from coderoom.runs.journal import Journal, RunEntry
from coderoom.runs.pages.frame import prose_html

_OTHERWISE: Final = (
    '<label for="words-{number}">Why not, for the model, which then tries again; or other code</label>'
    '<textarea id="words-{number}" name="words" rows="4" dir="auto" spellcheck="false"></textarea>'
    '<p><button name="answer" value="no">No</button> '
    '<button name="answer" value="edit">Run this code instead</button></p>'
)


def controls_html(journal: Journal, entry: RunEntry) -> str:
    """The questions of a run and a button that stops it; nothing once it has ended."""
    if entry.state != "running":
        return ""
    place = escape(quote(entry.id, safe=""))
    asked = "".join(
        f'<section class="card question" aria-labelledby="question-{each.id}">'
        f'<h2 id="question-{each.id}">May this code run?</h2>{prose_html(each.text)}'
        f"{_form(place, each, '<button class=main name=answer value=yes>Yes, run it</button>')}"
        f"{_form(place, each, _OTHERWISE.format(number=each.id))}</section>"
        for each in journal.questions(entry.id)
    )
    stop = f'<form method="post" action="{place}/stop" class="stop"><button>Stop the run</button></form>'
    return f'<section class="controls" aria-label="Controls">{asked}{stop}</section>'


def _form(place: str, question: Question, content: str) -> str:
    hidden = f'<input type="hidden" name="question" value="{question.id}">'
    return f'<form method="post" action="{place}/answer">{hidden}{content}</form>'


def act(journal: Journal, entry: RunEntry, what: str, fields: Mapping[str, str]) -> None:
    """Do what a form of the controls asks for: `stop`, or `answer`.

    Raises:
        RequestError: The run has ended, the question is not asked any more, or there is no such form.
    """
    answer, words = fields.get("answer", ""), fields.get("words", "").strip("\r\n")
    if what == "stop":
        journal.stop(entry.id)
    elif what == "answer" and answer in ("yes", "no", "edit") and fields.get("question", "").isdecimal():
        if answer == "edit" and not words.strip():
            raise RequestError("There is no code to run instead: write it into the field.")
        text = f"edit:\n{words}" if answer == "edit" else f"{answer} because {words}" if words.strip() else answer
        journal.answer(entry.id, int(fields["question"]), text)
    else:
        raise RequestError("There is nothing to do here.")

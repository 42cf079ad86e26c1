"""What a person does on the page of a run that goes on: see what it does, stop it, answer it, and talk to its team."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from time import time
from typing import Final
from urllib.parse import quote

from coderoom.errors import RequestError
from coderoom.runs.asked import Question
from coderoom.runs.doing import MOST_SHOWN
from coderoom.runs.journal import Journal, RunEntry
from coderoom.runs.pages.frame import duration, prose_html, text_html
from coderoom.steps import APPROVAL, CODE, MODEL, WORDS, AskedAbout

_DOES: Final = {
    MODEL: "waits for the model",
    CODE: "runs code",
    APPROVAL: "waits for an approval",
    "input": "waits for a person",
    "call": "waits for a function of the host",
}
_ASKED: Final[dict[AskedAbout, tuple[str, str, str]]] = {
    "code": ("May this code run?", "Yes, run it", "Why not, for the model, which then tries again"),
    "call": ("May this call be made?", "Yes, call it", "Why not, for the code, which gets it as an error"),
    "changes": ("May these changes be made?", "Yes, make them", "Why not"),
}
_ALWAYS: Final = '<button name="answer" value="always">Always in this session</button>'
_NO: Final = (
    '<label for="words-{number}">{why}</label>'
    '<textarea id="words-{number}" name="words" rows="2" dir="auto"></textarea>'
    '<p><button name="answer" value="no">No</button></p>'
)
_EDIT: Final = (
    "<details><summary>Edit the {about}</summary>"
    '<label for="code-{number}">The {about}, about which you are asked again</label>'
    '<textarea id="code-{number}" name="code" rows="{lines}" dir="ltr" spellcheck="false" wrap="off">'
    "\n{code}</textarea>"
    '<p><button name="answer" value="edit">Take this {about} instead</button></p></details>'
)
_SAY: Final = (
    '<form method="post" action="{place}/say" class="say" id="say" data-v="1">'
    '<label for="words">Say something to the team, for its next step</label>'
    '<textarea id="words" name="words" rows="2" dir="auto" required></textarea><p><button>Say it</button></p></form>'
)
_WITH_TEAM: Final = ("run", "chat")
"""The commands whose teams people talk to."""
_LINES: Final = range(4, 30)
"""The least and the most lines of the field for code."""


def controls_html(journal: Journal, entry: RunEntry) -> str:
    """The questions of a run, a button that stops it, and a field for words; nothing once it has ended."""
    if entry.state != "running":
        return ""
    place = escape(quote(entry.id, safe=""))
    asked = "".join(_question(place, each) for each in journal.questions(entry.id))
    stop = f'<form method="post" action="{place}/stop" class="stop"><button>Stop the run</button></form>'
    asks = f'hx-get="{place}/now" hx-trigger="every 1s" hx-select="#now" hx-swap="morph" hx-sync="this:drop"'
    now = f'<div id="now" class="polled" {asks}>{now_html(journal, entry)}</div>'
    say = _SAY.format(place=place) if entry.command in _WITH_TEAM else ""
    return f'<section class="controls" aria-label="Controls">{stop}{asked}{now}{say}</section>'


def now_html(journal: Journal, entry: RunEntry) -> str:
    """What a run does at this moment, since when, and what that has written; nothing if it has ended."""
    if entry.state != "running":
        return ""
    now, parts = time(), list[str]()
    for each in journal.doings(entry.id):
        if each.kind == WORDS:
            parts.append(f'<p dir="auto"><b>For the next step of the team:</b> {text_html(each.text)}</p>')
            continue
        who = f"{each.actor}, branch {each.branch}" if each.branch else each.actor
        words = f"{who} {_DOES.get(each.kind, each.kind)}".strip()
        parts.append(f'<p dir="auto"><b>{text_html(words)}</b> for {duration(now - each.since)}</p>')
        if each.text:
            text = text_html(each.text[-MOST_SHOWN:])
            parts.append(f'<div class="tail" tabindex="0"><pre class="output" dir="auto">{text}</pre></div>')
    return f'<p class="dim">The run has gone on for {duration(now - entry.started)}.</p>{"".join(parts)}'


def _question(place: str, asked: Question) -> str:
    """A question with its forms, which stays as it is when the page changes: something may be written in it."""
    title, yes, why = _ASKED[asked.about]
    answers = f'<button class="main" name="answer" value="yes">{yes}</button>'
    if asked.about == "call":
        answers += f" {_ALWAYS}"
    forms = [answers, _NO.format(number=asked.id, why=why)]
    if asked.code:
        lines = max(_LINES.start, min(_LINES.stop, asked.code.count("\n") + 2))
        code = escape(asked.code)
        forms.append(_EDIT.format(number=asked.id, lines=lines, code=code, about=asked.about))
    return (
        f'<section class="card question" id="asked-{asked.id}" data-v="{asked.id}" '
        f'aria-labelledby="question-{asked.id}"><h2 id="question-{asked.id}">{title}</h2>'
        f"{prose_html(asked.text)}{''.join(_form(place, asked, form) for form in forms)}</section>"
    )


def _form(place: str, question: Question, content: str) -> str:
    hidden = f'<input type="hidden" name="question" value="{question.id}">'
    return f'<form method="post" action="{place}/answer">{hidden}{content}</form>'


def act(journal: Journal, entry: RunEntry, what: str, fields: Mapping[str, str]) -> None:
    """Do what a form of the controls asks for: `stop`, `say` or `answer`.

    Raises:
        RequestError: The run has ended, the question is not asked any more, or there is no such form.
    """
    answer, words, code = (fields.get(name, "").replace("\r\n", "\n") for name in ("answer", "words", "code"))
    if what == "stop":
        journal.stop(entry.id)
    elif what == "say" and words.strip() and entry.command in _WITH_TEAM:
        if entry.state != "running":
            raise RequestError(f"The run {entry.id} has ended.")
        journal.say(entry.id, words.strip())
    elif what == "answer" and answer in ("yes", "no", "edit", "always") and fields.get("question", "").isdecimal():
        if answer == "edit" and not code.strip():
            raise RequestError("There is no code to run instead: write it into the field.")
        text = (
            f"edit:\n{code}" if answer == "edit" else f"{answer} because {words.strip()}" if words.strip() else answer
        )
        journal.answer(entry.id, int(fields["question"]), text)
    else:
        raise RequestError("There is nothing to do here.")

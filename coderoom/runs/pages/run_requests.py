"""Requests to models and their replies on the page of a run, as they were sent, and what they have cost."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import quote

from coderoom._util.text import in_dollars
from coderoom.errors import RequestError
from coderoom.models.prices import cost_of
from coderoom.runs.journal import Journal, RunEntry, Step
from coderoom.runs.pages.frame import Parts, folded_html, section_html, text_html
from coderoom.runs.run_log import conversations
from coderoom.steps import CODE, MODEL

_LARGEST: Final = 2_000_000
"""Characters of requests in a page without a server."""
_LARGEST_MESSAGE: Final = 200_000
_ASKED: Final = (
    '<div hx-get="{}/request/{}" hx-trigger="toggle from:closest details once" '
    'hx-swap="outerHTML" hx-select="unset" hx-sync="unset">'
    '<p class="dim">Asking the server. This needs scripts.</p></div>'
)
_MOST_TOLD: Final = 1_000
"""With more, turns have no rows of their own."""


class RequestsHtml:
    """All requests of a run as HTML, each of which can be opened, and of which there may be more.

    Args:
        entry: The run.
        live: Whether the server is asked for each; else each has the messages that are new in it.
    """

    def __init__(self, entry: RunEntry, *, live: bool) -> None:
        self._entry, self._live = entry, live
        self._parts: Parts | None = None
        self._room, self._left_out = _LARGEST, 0

    def add(self, journal: Journal, steps: Sequence[Step]) -> None:
        """Add the requests among steps; without a server, those are all of its steps."""
        names = {} if self._live else conversations(steps)
        for step in (step for step in steps if step.kind == MODEL):
            self._parts = self._parts or Parts("requests", tag="ol", style="requests")
            if self._live:
                inner = _ASKED.format(escape(quote(self._entry.id, safe="")), step.number)
            elif self._room > 0:
                base = (step.request.get("messages") or {}).get("base", 0)
                inner = _request(journal, self._entry, step, names[step.number], names.get(base, []), base)
                self._room -= len(inner)
            else:
                inner = "It is not in this page."
                self._left_out += 1
            self._parts.add(
                f'<li><details class="request" id="request-{step.number}"><summary>{_title(step)}</summary>'
                f"{inner}</details></li>"
            )

    def html(self, have: Container[str] = (), *, packed: bool = False) -> str:
        """The section. The arguments are those of the `html` of `Parts`."""
        if self._parts is None:
            return ""
        note = (
            f'<p class="notice">This page has no more room for {self._left_out:,} requests; '
            f"<code>coderoom runs show {escape(self._entry.id)} --json</code> has them.</p>"
        )
        parts = self._parts.html(have, packed=packed)
        return section_html("requests", "Requests to models", note * bool(self._left_out) + parts)


def request_html(journal: Journal, entry: RunEntry, number: str) -> str:
    """The request of a step with its whole conversation.

    Raises:
        RequestError: There is none.
    """
    steps = list(journal.steps(entry.id))
    step = next((each for each in steps if each.kind == MODEL and str(each.number) == number), None)
    if step is None:
        raise RequestError(f"The run {entry.id} has no request {number!r}.")
    return _request(journal, entry, step, conversations(steps)[step.number], [], 0)


def _title(step: Step) -> str:
    usage = step.result["usage"]
    model = (step.request or {}).get("model", "")
    parts = [step.actor, model, f"{usage['prompt_tokens']:,} → {usage['completion_tokens']:,} tokens"]
    parts += [f"{step.seconds:.2f} s"] + ["from the cache"] * bool(step.result.get("cached"))
    reason = step.result.get("finish_reason", "")
    parts += [reason] if reason not in ("stop", "") else []
    return f"{step.number}: {text_html(' · '.join(filter(None, parts)))}"


def _request(
    journal: Journal, entry: RunEntry, step: Step, names: Sequence[str], before: Sequence[str], base: int
) -> str:
    same = 0
    while same < min(len(names), len(before)) and names[same] == before[same]:
        same += 1
    parts = [
        f'<p class="dim">{same} messages as in <a href="#request-{base}">request {base}</a>, and then:</p>'
    ] * bool(same)
    for name in names[same:]:
        text = journal.content(entry.id, name).decode("utf-8", "replace")
        try:
            message = json.loads(text)
        except ValueError:
            message = {"content": text}
        role = str(message.get("type", "message")).removesuffix("Message").removesuffix("Execution")
        parts.append(_message(role, message.get("source", ""), message.get("content"), message.get("thought")))
    result = step.result
    parts.append(_message("Reply", step.actor, result.get("content"), result.get("thought")))
    rest = {key: value for key, value in step.request.items() if key != "messages" and value not in (None, [], {}, "")}
    facts = {key: value for key, value in result.items() if key not in ("content", "thought") and value is not None}
    for title, data in (("parameters", rest), ("usage and end", facts)):
        parts.append(f"<details><summary>{title}</summary>{_json(data)}</details>")
    return f'<div class="conversation">{"".join(parts)}</div>'


def _message(role: str, source: Any, content: Any, thought: Any) -> str:
    who = f' <span class="dim">{text_html(source)}</span>' if source else ""
    thinks = f'<p class="dim">thought</p>{folded_html(str(thought)[:_LARGEST_MESSAGE])}' if thought else ""
    if not isinstance(content, str):
        shown = _json(content)
    else:
        shown = folded_html(content[:_LARGEST_MESSAGE])
        if len(content) > _LARGEST_MESSAGE:
            shown += f'<p class="notice">{len(content) - _LARGEST_MESSAGE:,} more characters are not shown.</p>'
    return f'<div class="message"><h3>{text_html(role)}{who}</h3>{thinks}{shown}</div>'


def _json(data: Any) -> str:
    return folded_html(json.dumps(data, indent=2, ensure_ascii=False)[:_LARGEST_MESSAGE])


def usage_html(steps: Sequence[Step], places: Mapping[str, Sequence[tuple[int, str]]]) -> str:
    """A table of what each agent has used, and each of its turns; `places` has the ids of those by agent and step."""
    used: dict[tuple[str, str], _Used] = {}
    for step in steps:
        if step.kind in (MODEL, CODE):
            used.setdefault((step.actor, ""), _Used()).add(step)
            told = places.get(step.actor, ())
            at = bisect_left(told, (step.number, ""))  # What leads to a message comes before it.
            if at < len(told) and len(told) <= _MOST_TOLD:
                used.setdefault((step.actor, told[at][1]), _Used()).add(step)
    if not any(each.requests for each in used.values()):
        return ""
    rows = ""
    for who in dict.fromkeys(who for who, _ in used):
        turns = [turn for name, turn in used if name == who and turn]
        rows += used[who, ""].row(f"<b>{text_html(who or 'all')}</b>")
        for number, turn in enumerate(turns if len(turns) > 1 else (), 1):
            rows += used[who, turn].row(f'<a class="turn-of" href="#{turn}">turn {number}</a>')
    names = ("requests", "prompt tokens", "completion tokens", "cost", "model", "code")
    head = "".join(f'<th scope="col" class="number">{name}</th>' for name in names)
    table = f'<table><thead><tr><th scope="col">agent</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    scroll = f'<div class="scroll" role="region" tabindex="0" aria-labelledby="usage">{table}</div>'
    return section_html("usage", "Tokens, cost and time", scroll)


class _Used:
    """A sum of steps."""

    def __init__(self) -> None:
        self.requests = self.prompt = self.completion = 0
        self.cost: float | None = 0.0
        self.seconds: dict[str, float] = {MODEL: 0.0, CODE: 0.0}

    def add(self, step: Step) -> None:
        """Add a request or a run of code."""
        self.seconds[step.kind] += step.seconds
        if step.kind == MODEL:
            usage: Mapping[str, int] = step.result["usage"]
            self.requests += 1
            self.prompt += usage["prompt_tokens"]
            self.completion += usage["completion_tokens"]
            cost = cost_of(
                (step.request or {}).get("priced_as", ""), usage["prompt_tokens"], usage["completion_tokens"]
            )
            self.cost = None if cost is None or self.cost is None else self.cost + cost

    def row(self, name: str) -> str:
        """The row of a table."""
        cost = "" if self.cost is None or not self.requests else in_dollars(self.cost)
        times = [f"{self.seconds[kind]:.1f} s" for kind in (MODEL, CODE)]
        cells = [f"{self.requests:,}", f"{self.prompt:,}", f"{self.completion:,}", cost, *times]
        return f'<tr><th scope="row">{name}</th>{"".join(f"<td class=number>{cell}</td>" for cell in cells)}</tr>'

"""One self-contained page of a run, which works offline: its story, files, verdicts, tokens and times."""

from __future__ import annotations

import base64
import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

from coderoom._util.autogen import AFTER_ONE_TURN
from coderoom._util.text import in_dollars, visible
from coderoom.runs.branches import Branch
from coderoom.runs.journal import TASK, Journal, RunEntry, Step, without_files
from coderoom.runs.pages.frame import code_html, markdown_html, page_of, polled, style_of, text_html
from coderoom.runs.record import network_in, network_words, output_beside
from coderoom.runs.story import (
    Branching,
    Cell,
    Check,
    Code,
    Entry,
    Folding,
    Output,
    Progress,
    Summary,
    Task,
    Verdict,
    Words,
    tell_steps,
)
from coderoom.sandbox import NetworkUse
from coderoom.steps import CODE, MODEL

_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"})
_TIMED: Final = {MODEL: "models", CODE: "code", "approval": "decisions", "input": "decisions"}
_LARGEST_SHOWN: Final = 500_000
_MOST_LINES: Final = 2_000
_FRAME: Final = (
    "<!doctype html><meta charset='utf-8'><style>body { font: 0.9em sans-serif; background: white; }</style>"
)


def run_page(journal: Journal, entry: RunEntry, *, live: bool = False) -> str:
    """The page of a run, as HTML; a live one asks its server for what is new."""
    steps = list(journal.steps(entry.id))
    title = " ".join(visible(without_files(entry.task) or entry.name).split())[:80]
    parts = [_head(entry, steps), _time_line(steps, entry), *_story(journal, entry, steps), _requests(steps)]
    body = polled("run", "".join(parts)) if live else "".join(parts)
    return page_of(title, body, styles=["run.css"], live=live, trail=[("Runs", "./")] if live else [])


def _head(entry: RunEntry, steps: Sequence[Step]) -> str:
    facts = entry.facts
    # The facts are those of the last task, and of the end.
    of_last = " (the last task)" if sum(step.kind == TASK for step in steps) > 1 else ""
    used = [step.result["usage"] for step in steps if step.kind == MODEL]
    tokens = sum(each["prompt_tokens"] + each["completion_tokens"] for each in used)
    is_all = tokens == (facts.get("usage") or {}).get("total_tokens")
    cost = facts.get("cost_usd") if is_all else None
    is_unchecked = entry.command == "batch" and all(step.kind != "verdict" for step in steps)
    stopped = facts.get("stop_reason")
    used_network = [use for step in steps if step.kind == CODE for use in network_in(step.result)]
    output = output_beside(str(facts.get("answer") or ""), str(facts.get("output") or ""))
    rows = {
        "outcome": f'<b class="{style_of(entry)}">{escape(entry.state)}</b>',
        "error": text_html(facts.get("error")),
        "stopped": text_html(facts.get("limit") or ("" if stopped == AFTER_ONE_TURN else stopped)),
        "answer": markdown_html(str(facts["answer"])) if facts.get("answer") else "",
        "output": f'<pre class="output">{text_html(output)}</pre>' if output else "",
        "check": "Nothing has checked the answer." if is_unchecked else "",
        "file" if entry.command == "exec" else "team": text_html(entry.name),
        "model": text_html(entry.model or ", ".join(sorted(set((facts.get("models") or {}).values())))),
        "isolation": text_html(facts.get("isolation")),
        "began": f"{datetime.fromtimestamp(entry.started).astimezone():%Y-%m-%d %H:%M:%S %Z}",
        "time": f"{facts['seconds']:.1f} s{of_last}" if "seconds" in facts else "",
        "tokens": f"{tokens:,}{'' if cost is None else f', {in_dollars(cost)}'}" if tokens else "",
        "notes": "<br>".join(text_html(note) for note in facts.get("notices") or ()),
        "files": "<br>".join(text_html(file) for file in facts.get("files") or ()),
        "network": text_html(network_words(used_network)),
        "packages": _packages(facts.get("lock") or ""),
        "id": text_html(entry.id),
    }
    listed = "".join(f"<tr><th>{escape(name)}</th><td>{value}</td></tr>" for name, value in rows.items() if value)
    return f"<h1>{text_html(without_files(entry.task) or entry.name)}</h1><table>{listed}</table>"


def _packages(lock: str) -> str:
    names = ", ".join(line.split()[0] for line in lock.splitlines() if line[:1].isalnum())
    return f"<details><summary>{text_html(names)}</summary><pre>{text_html(lock)}</pre></details>" if names else ""


def _time_line(steps: Sequence[Step], entry: RunEntry) -> str:
    timed = [step for step in steps if step.kind in _TIMED]
    if not timed:
        return ""
    begin = min(step.at - step.seconds for step in timed)
    cut_short = entry.ended or 0 if entry.outcome == "cancelled" else 0  # The last step has not ended.
    whole = max(max(step.at for step in timed) - begin, cut_short - begin, 0.001)
    bars = ""
    for step in timed:
        place = f"left:{(step.at - step.seconds - begin) / whole:.3%};width:{step.seconds / whole:.3%}"
        what = f"{text_html(step.actor)} {_TIMED[step.kind]} {step.seconds:.2f} s"
        bars += f'<span class="{step.kind}" style="{place}" title="{what}"></span>'
    sums = {kind: sum(step.seconds for step in timed if step.kind == kind) for kind in _TIMED}
    legend = " · ".join(
        f'<span class="key {kind}"></span> {_TIMED[kind]} {seconds:.1f} s' for kind, seconds in sums.items() if seconds
    )
    return f'<h2>Time</h2><div class="line">{bars}</div><p class="dim">{legend}</p>'


def _story(journal: Journal, entry: RunEntry, steps: Sequence[Step]) -> Iterator[str]:
    speaker, before = "", dict[str, str]()  # The code of each agent before.

    def difference(source: str, code: str) -> str:
        old, before[source] = before.get(source, ""), code
        lines = old.splitlines(), code.splitlines()
        if not old or max(map(len, lines)) > _MOST_LINES:  # A comparison takes more than linear time.
            return ""
        text = "\n".join(difflib.unified_diff(*lines, "before", "now", lineterm=""))
        return f"<details><summary>what has changed</summary>{code_html(text, 'diff')}</details>" if text else ""

    def shown(told: Entry) -> Iterator[str]:
        match told:
            case Task():
                before.clear()
            case Branching(facts=facts):
                yield f"<p>{text_html(facts.title)}</p>"
                old, last = before.get(told.source, ""), dict[str, str]()
                items = ""
                for each in facts.branches:
                    before[told.source] = old
                    inner = "".join(part for one in told.told.get(each.branch, ()) for part in shown(one))
                    last[each.branch] = before[told.source]
                    items += _branch(each, inner, won=each.branch == facts.won)
                before[told.source] = last.get(facts.won or "", old)
                yield f'<ul class="branches">{items}</ul>'
            case Cell(code=code):
                yield f"<h2>block {told.number}</h2>{code_html(code, told.language)}"
                yield _output(told.output, told.outcome, journal, entry, told.files) + _network(told.network)
            case Progress(code=code):
                yield f"<div>{text_html(told.text)}</div>"
                if code:
                    yield code_html(code, told.language) + difference(told.source, code)
                if told.failed:
                    yield f'<pre class="output bad">{text_html(chr(10).join(told.failed))}</pre>'
            case Check(passed=passed):
                yield f"<h2>check</h2>{_output(told.text, 'ok' if passed else 'not passed', journal, entry)}"
            case Code(blocks=[first, *_]):
                code = "\n\n".join(block.code for block in told.blocks)
                prose = f"<details><summary>reply</summary>{markdown_html(told.text)}</details>"
                yield code_html(code, first.language) + difference(told.source, code) + prose
            case Output(text=output):
                yield _output(output, told.outcome, journal, entry, told.files) + _network(told.network)
            case Verdict(approved=approved):
                style, word = ("good", "approved") if approved else ("bad", "not approved")
                yield f'<p class="{style}"><b>{word}</b></p>{markdown_html(told.text)}'
            case Summary(new=new):
                yield markdown_html(new)
            case Words(is_prose=False):
                yield f'<pre class="output">{text_html(told.text)}</pre>'
            case _:
                yield markdown_html(told.text)

    folding = Folding()
    for each in tell_steps(steps):
        told = folding.fold(each)
        if told is None:
            continue
        if told.source != speaker and not isinstance(told, Task | Cell | Progress | Check | Branching):
            speaker = told.source
            yield f"<h2>{text_html(speaker)}</h2>"
        yield from shown(told)
    for told in folding.rest():  # Their branches have not ended.
        yield from shown(told)


def _branch(branch: Branch, told: str, *, won: bool) -> str:
    """What came of a branch, and behind it what it told, which is open if it goes on."""
    style, outcome = "good" if branch.outcome == "ok" else "bad", branch.outcome or "no code"
    cost = "" if branch.cost_usd is None else f", {in_dollars(branch.cost_usd)}"
    used = f"{branch.input_tokens + branch.output_tokens:,} tokens{cost}, {branch.seconds:.1f} s"
    line = (
        f'<b>{text_html(branch.number)}</b> <span class="{style}">{text_html(outcome)}</span> '
        f"{text_html(branch.verdict)}"
        f'{" <b>goes on</b>" * won} <span class="dim">{used} {text_html(branch.variation)}</span>'
    )
    is_open = " open" * won
    return f"<li>{f'<details{is_open}><summary>{line}</summary>{told}</details>' if told else line}</li>"


def _output(
    output: str, outcome: str, journal: Journal, entry: RunEntry, files: Sequence[Mapping[str, Any]] = ()
) -> str:
    """What code has printed, with the files that it has shown in their places, and then all other files."""
    style = "good" if outcome == "ok" else "bad"
    parts, begin = [f'<div class="{style}">{text_html(outcome)}</div>'], 0
    for file in sorted(files, key=lambda file: math.inf if file.get("position") is None else file["position"]):
        end = len(output) if file.get("position") is None else file["position"]
        if output[begin:end].strip():
            parts.append(f'<pre class="output {style}">{text_html(output[begin:end])}</pre>')
        begin = max(begin, end)
        parts.append(_file(journal, entry, file))
    if output[begin:].strip():
        parts.append(f'<pre class="output {style}">{text_html(output[begin:])}</pre>')
    elif not output.strip():
        parts.append(f'<pre class="output {style}"><span class="dim">(no output)</span></pre>')
    return "".join(parts)


def _network(uses: Sequence[NetworkUse]) -> str:
    lines = "\n".join(map(str, uses))
    return f"<details><summary>network</summary><pre>{text_html(lines)}</pre></details>" if uses else ""


def _file(journal: Journal, entry: RunEntry, artifact: Mapping[str, Any]) -> str:
    """A file that code has made: a picture, or a value's table or text, as it is; others by name and size."""
    kind, shown = artifact["media_type"], ""
    data = journal.content(entry.id, artifact.get("hash") or "")
    if data and kind in _PICTURES:
        source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        shown = f'<br><img src="{source}" alt="{escape(artifact["name"])}">'
    elif data and artifact.get("position") is not None and len(data) <= _LARGEST_SHOWN:
        text = data.decode("utf-8", "replace")
        if kind == "text/html":  # It may be anything: nothing in it runs, and it reaches nothing.
            height = min(30, 2.5 + 1.4 * text.count("<tr"))
            shown = f'<iframe sandbox srcdoc="{escape(_FRAME + text)}" style="height: {height}em"></iframe>'
        elif kind == "text/markdown":
            shown = markdown_html(text)
    return f'<div>{text_html(artifact["name"])} <span class="dim">{artifact["size"]:,} bytes</span>{shown}</div>'


def _requests(steps: Sequence[Step]) -> str:
    asked = [step for step in steps if step.kind == MODEL]
    if not asked:
        return ""
    rows = ""
    for step in asked:
        usage = step.result["usage"]
        counts = f"<td>{usage['prompt_tokens']:,}</td><td>{usage['completion_tokens']:,}</td>"
        rows += f"<tr><td>{text_html(step.actor)}</td><td>{step.seconds:.2f} s</td>{counts}</tr>"
    head = "<tr><th>agent</th><th>time</th><th>prompt tokens</th><th>completion tokens</th></tr>"
    return f"<h2>Requests to models</h2><details><summary>{len(asked)}</summary><table>{head}{rows}</table></details>"

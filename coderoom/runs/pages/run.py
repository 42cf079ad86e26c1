"""One self-contained page of a run, which works offline: what came of it, its story, its times and its requests."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from coderoom._util.autogen import AFTER_ONE_TURN
from coderoom._util.text import counted, in_dollars, visible
from coderoom.runs.export.run import SUFFIXES
from coderoom.runs.journal import TASK, Journal, RunEntry, Step, without_files
from coderoom.runs.pages.frame import (
    badge,
    code_html,
    facts_html,
    folded_html,
    page_of,
    part_html,
    path_html,
    polled,
    prose_html,
    section_html,
    style_of,
    text_html,
)
from coderoom.runs.pages.run_controls import controls_html
from coderoom.runs.pages.run_files import file_html, is_picture
from coderoom.runs.pages.run_requests import usage_html
from coderoom.runs.pages.run_story import FOOLED, Mark, outline_html
from coderoom.runs.pages.run_time import time_html
from coderoom.runs.pages.run_told import ToldRun
from coderoom.runs.record import network_in, network_words, output_beside, why_failed
from coderoom.runs.tables import without_table
from coderoom.steps import CODE, MODEL

STYLES: Final = ("run.css",)
SCRIPTS: Final = ("tables.js", "run.js")
"""Files of `static/`, besides those of all pages."""
_LONGEST_HEADING: Final = 200
_LONGEST_TITLE: Final = 80
_MOST_SHOWN: Final = 6
"""Files beside the answer."""
_File = tuple[Mapping[str, Any], bytes]
"""A file as the journal has it, and its content."""
_MOST_PRINTED: Final = 12
"""Lines of output under the answer that are not folded."""
_MANY: Final = 300
"""With more entries, those that are not seen are not rendered, which a picture of the whole page would show."""
_VERY_MANY: Final = 2_000
"""With more entries, a browser with scripts keeps those that are far away as text."""
_BUTTONS: Final = (
    '<p class="scripted"><button type="button" data-keys>Keys <kbd>?</kbd></button> '
    '<button type="button" data-numbers aria-pressed="false">Line numbers</button></p>'
)
_STEPS_A_SECOND: Final = 10_000
"""So much of a live page is made again while its server has other things to do."""
_TOOLS: Final = (
    '<form class="find scripted" role="search" hidden><label class="hidden" for="find">Find in this page</label>'
    '<input id="find" type="search" placeholder="Find in this page" autocomplete="off">'
    '<output for="find" aria-live="polite"></output><button type="submit" aria-label="Next">\u2193</button>'
    '<button type="button" data-find="before" aria-label="Previous">\u2191</button>'
    '<button type="button" data-find="close" aria-label="Close">\u2715</button></form>'
    '<dialog id="keys" aria-labelledby="keys-title"><h2 id="keys-title">Keys</h2><dl>'
    "<dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next and previous entry</dd>"
    "<dt><kbd>h</kbd> <kbd>l</kbd></dt><dd>previous and next run of the list that led here</dd>"
    "<dt><kbd>/</kbd></dt><dd>find in this page, also in what is folded</dd>"
    "<dt><kbd>n</kbd></dt><dd>line numbers</dd>"
    "<dt><kbd>o</kbd></dt><dd>open or close what is folded in this entry</dd>"
    "<dt><kbd>?</kbd></dt><dd>these keys</dd></dl>"
    '<form method="dialog"><button class="main">Close</button></form></dialog>'
)


def run_page(
    journal: Journal,
    entry: RunEntry,
    *,
    live: bool = False,
    trail: Sequence[tuple[str, str]] = (),
    have: Container[str] | None = None,
    shared_at: str = "",
    told: ToldRun | None = None,
) -> str:
    """The page of a run, as HTML.

    Args:
        journal: The journal.
        entry: The run.
        live: Whether the page asks its server for what is new.
        trail: The pages above it, as names and links.
        have: The versions of the parts that a live page has already. Then this is only what changes in it, in which
            those parts are empty; `None`: the whole page.
        shared_at: The folder with `STYLES` and `SCRIPTS`, as an address; empty: they are in the page.
        told: The run as its page had it before; `None`: it is told from its beginning.
    """
    is_whole, have = have is None, have or ()
    told = told or ToldRun(entry, live=live)
    told.catch_up(journal, entry)
    story, steps = told.story, told.steps
    is_long, is_vast = len(story.shown) > _MANY, len(story.shown) > _VERY_MANY
    packed = is_vast and is_whole
    sections = {
        "Time": time_html(steps, entry, story.shown),
        "Usage": usage_html(steps, story.places),
        "Requests": told.requests.html(have, packed=packed),
    }
    more = [Mark(name.lower(), name, 0) for name, section in sections.items() if section]
    outline = f"{_BUTTONS}{outline_html([Mark('main', 'Result', 0), *story.outline, *more], have)}"
    parts = "".join(part_html(f"part-{name.lower()}", section, have) for name, section in sections.items() if section)
    body = (
        f'<div class="run{" long" * is_long}{" vast" * is_vast}">'
        f'<details class="outline"><summary>Outline</summary><nav aria-label="Outline">{outline}</nav></details>'
        f'<div class="content">{controls_html(journal, entry) if live else ""}{_head(journal, entry, told, live=live)}'
        f"{story.html(have, packed=packed)}{parts}</div></div>"
    )
    if live:
        body = polled("run", body, seconds=1 + len(steps) // _STEPS_A_SECOND)
    if not is_whole:
        return body
    task = " ".join(visible(without_files(entry.task) or entry.name).split())
    title = task if len(task) <= _LONGEST_TITLE else f"{task[: _LONGEST_TITLE - 1]}\u2026"
    return page_of(
        title,
        body + _TOOLS,
        styles=STYLES,
        scripts=SCRIPTS,
        live=live,
        trail=[("Runs", "./")] if live else trail,
        shared_at=shared_at,
    )


def _exports(entry: RunEntry) -> str:
    """Links to the run as other files, which the server makes."""
    links = (f'<a href="./{quote(entry.id, safe="")}/export/{kind}" download>{kind}</a>' for kind in SUFFIXES.values())
    return ", ".join(links)


def _head(journal: Journal, entry: RunEntry, told: ToldRun, *, live: bool) -> str:
    facts, steps = entry.facts, told.steps
    answer, stopped = str(facts.get("answer") or ""), facts.get("stop_reason")
    output = str(facts.get("output") or "")
    if answer or style_of(entry) != "bad":  # A run that has failed has no answer.
        output = output_beside(answer, output)
    reason = facts.get("limit") or ("" if stopped == AFTER_ONE_TURN else stopped)
    parts = [
        _heading(entry),
        f'<p class="badges">{badge(entry.state, style_of(entry))} {" ".join(_checked(entry, told))}</p>',
    ]
    if facts.get("error"):
        parts.append(f'<div class="notice bad" role="note">{folded_html(str(facts["error"]))}</div>')
    parts += [f'<p class="notice" dir="auto">{text_html(note)}</p>' for note in facts.get("notices") or ()]
    words = prose_html(answer)
    words += told.story.unrun * bool(words)
    if entry.command == "solve" and (codes := facts.get("implementations")):
        words = code_html("\n\n\n".join(code.strip() for code in codes.values()), facts.get("language", "python"))
    files = _shown(journal, entry, steps)
    shown, output = "".join(file_html(*each) for each in files), _without_tables(output, files)
    printed = folded_html(output) if output.strip() else ""
    if output.count("\n") > _MOST_PRINTED:
        printed = f"<details><summary>output, {counted(output.count(chr(10)), 'line')}</summary>{printed}</details>"
    if words or shown or printed:
        inner = "".join(f"<div>{part}</div>" for part in (words, shown) if part)
        body = f'<div class="beside">{inner}</div>{printed}'
        parts.append(section_html("answer", "Answer" if words else "The last output", body, "card answer"))
    # Other facts are those of the last task, and of the end.
    whole: Mapping[str, Any] = facts.get("whole") or facts
    tasks = sum(step.kind == TASK for step in steps)
    of_last = " (the last task)" if tasks > 1 and whole is facts else ""
    used = [step.result["usage"] for step in steps if step.kind == MODEL]
    tokens = sum(each["prompt_tokens"] + each["completion_tokens"] for each in used)
    is_known = whole is not facts or tokens == (facts.get("usage") or {}).get("total_tokens")
    cost = whole.get("cost_usd") if is_known else None
    models = sorted(set((facts.get("models") or {}).values()))
    hosts = [use for step in steps if step.kind == CODE for use in network_in(step.result)]
    seconds = whole.get("seconds", facts.get("duration"))  # The latter is that of `solve`.
    attempts, began = whole.get("attempts"), datetime.fromtimestamp(entry.started).astimezone()
    grid = {
        "file" if entry.command == "exec" else "team": path_html(entry.name),
        "model": path_html(entry.model or ", ".join(models)),
        "began": f'<span class="nowrap">{began:%Y-%m-%d %H:%M:%S %Z}</span>',
        "tasks": f"{tasks:,}" if tasks > 1 else "",
        "time": "" if seconds is None else f"{seconds:.1f} s{of_last}",
        "stopped": text_html(reason),
        "gave up": text_html(why_failed(facts.get("outcome"), facts.get("agent_stop_reason"))),
        "attempts": f"{attempts:,}{of_last}" if attempts else "",
        "tokens": f"{tokens:,}" if tokens else "",
        "cost": "" if cost is None else in_dollars(cost),
        "isolation": text_html(facts.get("isolation")),
        "network": text_html(network_words(hosts)),
        "packages": _packages(facts.get("lock") or ""),
        "files": _files(facts.get("files") or (), told.story.files),
        "id": f"<code>{text_html(entry.id)}</code>",
        "save as": _exports(entry) if live else "",
    }
    return f'<header class="head" id="head">{"".join(parts)}{facts_html(grid)}</header>'


def _heading(entry: RunEntry) -> str:
    task = without_files(entry.task) or entry.name
    if len(task) <= _LONGEST_HEADING:
        return f'<h1 dir="auto">{text_html(task)}</h1>'
    start = f"{task[:_LONGEST_HEADING].rsplit(None, 1)[0]} \u2026"
    whole = (
        f'<details><summary>the whole task</summary><pre class="output" dir="auto">{text_html(task)}</pre></details>'
    )
    return f'<h1 dir="auto">{text_html(start)}</h1>{whole}'


def _checked(entry: RunEntry, told: ToldRun) -> Iterator[str]:
    """What has decided whether the run worked, and how strong that is."""
    facts, checks = entry.facts, [step.result for step in told.steps if step.kind == "verdict"]
    if checks:
        passed = checks[-1]["passed"]
        yield badge("check passed" if passed else "check not passed", "good" if passed else "bad")
        if checks[-1].get("can_be_fooled"):
            yield FOOLED
    elif entry.command == "batch":
        yield badge("Nothing has checked the answer.", "warn")
    if results := facts.get("test_results"):
        passed, count = sum(each["passed"] for each in results), len(results)
        yield badge(f"{passed} of {counted(count, 'test')} passed", "good" if passed == count else "bad")
        if any(each.get("can_be_fooled") for each in results):
            yield FOOLED
        elif all("can_be_fooled" in each for each in results):
            yield badge("judged outside of the code's process", "dim")
    measured = [each["strength"] for each in facts.get("functions") or () if each.get("strength")]
    if mutants := sum(each["mutants"] + each["unreached"] for each in measured):
        killed = sum(each["killed"] for each in measured)
        yield badge(
            f"strength: {killed} of {counted(mutants, 'mutant')} killed", "good" if killed == mutants else "warn"
        )
    if facts.get("approved") is not None:
        who = f" by {told.story.reviewer}" if told.story.reviewer else ""
        yield badge(("approved" if facts["approved"] else "not approved") + who, "good" if facts["approved"] else "bad")


def _shown(journal: Journal, entry: RunEntry, steps: Sequence[Step]) -> list[_File]:
    """The pictures and tables that the code has shown last; a notebook shows its own in their places."""
    if entry.command == "exec":
        return []
    found: dict[str, Mapping[str, Any]] = {}
    for step in steps:
        for file in (step.result.get("artifacts") or ()) if step.kind == CODE else ():
            if is_picture(file) or file.get("position") is not None:
                found.pop(file["name"], None)
                found[file["name"]] = file
    files = ((file, journal.content(entry.id, file.get("hash") or "")) for file in list(found.values())[-_MOST_SHOWN:])
    return [(file, data) for file, data in files if data]


def _without_tables(output: str, files: Sequence[_File]) -> str:
    """The output without the texts of tables that are shown beside it."""
    for file, data in reversed(files):
        if file["media_type"] == "text/html" and (place := file.get("position")) is not None:
            output = without_table(output[:place], data.decode("utf-8", "replace")) + output[place:]
    return output


def _files(files: Sequence[str], places: Mapping[str, str]) -> str:
    """The paths of the files that are left, with links to what was made of them in the story."""

    def shown(path: str) -> str:
        place = next((places[name] for name in places if f"/{path}".endswith(f"/{name}")), None)
        return path_html(path) if place is None else f'<a href="#{place}">{path_html(path)}</a>'

    listed = "<br>".join(map(shown, files))
    return f"<details><summary>{counted(len(files), 'file')}</summary>{listed}</details>" if len(files) > 1 else listed


def _packages(lock: str) -> str:
    names = [line.split()[0] for line in lock.splitlines() if line[:1].isalnum()]
    shown = ", ".join(names) if len(names) <= 2 else counted(len(names), "package")
    return f"<details><summary>{text_html(shown)}</summary><pre>{text_html(lock)}</pre></details>" if names else ""

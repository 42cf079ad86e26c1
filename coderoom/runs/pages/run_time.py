"""The time line on the page of a run: a lane for each agent, on which models, code and people are waited for."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from coderoom.runs.journal import RunEntry, Step
from coderoom.runs.pages.frame import section_html, text_html
from coderoom.runs.totals import covered
from coderoom.steps import CODE, MODEL

_TIMED: Final = {MODEL: "model", CODE: "code", "approval": "person", "input": "person", "call": "function"}
_MOST: Final = 1_000
_MOST_OF_LIVE: Final = 300
"""Bars of a run that goes on, which all change with each step."""
_TOLD: Final = 0.5
"""The least time between the steps that is told, in seconds: starting, installing packages, waiting for a task."""
_LANE: Final = 26
_BAR: Final = 18
_PATTERNS: Final = (
    "<defs>"
    '<pattern id="p-code" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" class="ground"/><rect width="3" height="6" class="code"/></pattern>'
    '<pattern id="p-person" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect width="6" height="6" class="ground"/><circle cx="3" cy="3" r="2" class="person"/></pattern>'
    '<pattern id="p-function" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect width="6" height="6" class="ground"/><rect width="6" height="3" class="function"/></pattern>'
    "</defs>"
)
_BUTTONS: Final = (
    '<div class="toolbar scripted" role="group" aria-label="Zoom">'
    '<button type="button" data-zoom="in" aria-label="Zoom in">+</button>'
    '<button type="button" data-zoom="out" aria-label="Zoom out">\u2212</button>'
    '<button type="button" data-zoom="all" aria-label="Show all of the time">All</button></div>'
)


def time_html(steps: Sequence[Step], entry: RunEntry, shown: Sequence[int]) -> str:
    """The time line. A bar leads to the first of the `shown` steps that is not before its own."""
    timed = [step for step in steps if step.kind in _TIMED]
    if not timed:
        return ""
    begin = min(entry.started, *(step.at - step.seconds for step in timed))
    cut_short = entry.ended or 0 if entry.outcome == "cancelled" else 0  # The last step has not ended.
    whole = max(max(step.at for step in timed) - begin, cut_short - begin, 0.001)
    other = whole - covered(sorted((step.at - step.seconds, step.at) for step in timed))
    sums = dict.fromkeys(_TIMED.values(), 0.0)
    for step in timed:
        sums[_TIMED[step.kind]] += step.seconds
    is_live = entry.state == "running"
    most = _MOST_OF_LIVE if is_live else _MOST
    # The short ones are upon the long ones, in which they may be.
    timed.sort(key=lambda step: step.seconds, reverse=True)
    lanes = list(dict.fromkeys(step.actor or entry.name for step in sorted(timed, key=lambda step: step.number)))

    def facts_of(step: Step) -> tuple[float, float, str, int, int]:
        """When it began, its seconds, its kind, its lane, and the shown step that its bar leads to."""
        place = shown[min(bisect_left(shown, step.number), len(shown) - 1)] if shown else 0
        lane = lanes.index(step.actor or entry.name)
        return step.at - step.seconds - begin, step.seconds, _TIMED[step.kind], lane, place

    bars = ""
    for after, seconds, kind, lane, place in map(facts_of, timed[:most]):
        left, width = after / whole, seconds / whole
        what = f"{lanes[lane]}: {kind}, {seconds:.2f} s, after {after:.1f} s"
        bars += (
            f'<a href="#step-{place}" tabindex="-1" aria-label="{text_html(what)}"><title>{text_html(what)}</title>'
            f'<rect class="bar-{kind}" x="{left:.4%}" y="{lane * _LANE + 4}" height="{_BAR}" '
            f'style="x:min({left:.4%},100% - 3px);width:max(3px,{width:.4%})"/></a>'
        )
    legend = "".join(
        f'<li><svg width="18" height="12" aria-hidden="true"><rect width="18" height="12" class="bar-{kind}"/></svg> '
        f"{kind} {seconds:.{1 if seconds > 1 else 3}f} s</li>"
        for kind, seconds in sums.items()
        if seconds
    )
    if other >= _TOLD:
        elsewhere = "judging, and the rest" if entry.command == "solve" else "none of these"
        legend += f"<li>{elsewhere} {other:.1f} s</li>"
    names = "".join(f'<li dir="auto" title="{text_html(name)}">{text_html(name)}</li>' for name in lanes)
    height = len(lanes) * _LANE + 22
    note = ""
    if rest := timed[most:]:
        more = "." if is_live else "; zooming in draws those that are in view."
        note = f"<p class=dim>The {most:,} longest of {len(timed):,} steps are drawn{more}</p>"
    if rest and not is_live:
        told = [(round(after, 3), round(seconds, 3), *more) for after, seconds, *more in map(facts_of, rest)]
        data = json.dumps(told, separators=(",", ":"))
        note += f'<script type="application/json" id="time-rest">{data}</script>'
    window = (
        '<div class="window" id="time-window" tabindex="0" role="group" '
        'aria-label="Time line: plus and minus zoom, the arrow keys move">'
        f'<svg id="time-line" width="100%" height="{height}" data-seconds="{whole:.3f}">{_PATTERNS}{bars}'
        f'<g class="ticks">{_ticks(whole, height)}</g></svg></div>'
    )
    lines = f'{_BUTTONS}<div class="lanes"><ul class="names">{names}</ul>{window}</div>'
    return section_html("time", "Time", f'{lines}<ul class="legend">{legend}</ul>{note}')


def _ticks(whole: float, height: int) -> str:
    """A few round moments on the axis, with room for their words; the script draws more when it zooms."""
    power = 10.0 ** math.floor(math.log10(whole / 4))
    between = next(each * power for each in (1, 2, 5, 10) if each * power >= whole / 4)
    digits = max(0, -math.floor(math.log10(between)))
    places = (at * between for at in range(5) if at * between <= 0.85 * whole)
    return "".join(f'<text x="{at / whole:.3%}" dx="4" y="{height - 5}">{at:.{digits}f} s</text>' for at in places)

"""Small charts as SVG, drawn on the server: they work without scripts, and in print. Used by the pages of batches."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

_WIDTH, _HEIGHT = 320, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 8, 8, 24
_MOST_BARS: Final = 24
_LABELS: Final = 4
_SKEWED: Final = 100
"""If the largest value is so many times the smallest one, each bar is wider than the one before."""


def histogram_svg(values: Sequence[float], name: str, unit: Callable[[float], str]) -> str:
    """How often values are how large, as a figure; empty if there are no values.

    Args:
        values: The values, none of them negative.
        name: What they are.
        unit: Writes a value.
    """
    if not values:
        return ""
    ordered = sorted(values)
    middle, late = (ordered[math.ceil(part * len(ordered)) - 1] for part in (0.5, 0.9))
    words = f"median {unit(middle)}, 90 % up to {unit(late)}, most {unit(ordered[-1])}"
    is_one = ordered[0] == ordered[-1]
    shown = f"{unit(middle)} each" if is_one else words
    caption = f'<figcaption><b>{escape(name)}</b> <span class="dim">{escape(shown)}</span></figcaption>'
    if is_one:
        return f"<figure>{caption}</figure>"
    edges = _edges(ordered[0], ordered[-1])
    counts = [0] * (len(edges) - 1)
    for value in ordered:
        counts[min(bisect_right(edges, value), len(counts)) - 1] += 1
    most = max(counts)
    wide, high = (_WIDTH - _LEFT - _RIGHT) / len(counts), _HEIGHT - _TOP - _BOTTOM
    bars = "".join(
        f'<rect x="{_LEFT + at * wide + 0.5:.1f}" y="{_TOP + high * (1 - count / most):.1f}" width="{wide - 1:.1f}" '
        f'height="{high * count / most:.1f}"><title>{escape(f"{unit(edges[at])} to {unit(edges[at + 1])}: {count:,}")}'
        "</title></rect>"
        for at, count in enumerate(counts)
        if count
    )
    step = math.ceil(len(counts) / _LABELS)
    labels = "".join(
        f'<text x="{_LEFT + at * wide:.1f}" y="{_HEIGHT - 8}" text-anchor="{"start" if at == 0 else "middle"}">'
        f"{escape(unit(edges[at]))}</text>"
        for at in range(0, len(edges) - step // 2, step)
    )
    base = _TOP + high
    axes = (
        f'<path class="axis" d="M{_LEFT} {_TOP}V{base}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 4}" y="{_TOP + 8}" text-anchor="end">{most:,}</text>'
        f'<text x="{_LEFT - 4}" y="{base}" text-anchor="end">0</text>'
    )
    return (
        f"<figure>{caption}"
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(f"{name}: {words}")}">'
        f"{bars}{axes}{labels}</svg></figure>"
    )


def _edges(low: float, high: float) -> list[float]:
    """Round edges of at most 24 bars from one value to another."""
    if low > 0 and high / low > _SKEWED:
        decades = math.log10(high) - math.log10(low)
        each = max(1, min(5, int((_MOST_BARS - 2) / decades)))
        first, last = math.floor(math.log10(low) * each), math.floor(math.log10(high) * each) + 1
        return [10 ** (at / each) for at in range(first, last + 1)]
    rough = (high - low) / (_MOST_BARS - 4) or high / 10 or 1
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * times for times in (1, 2, 5, 10) if size * times >= rough)
    first, last = math.floor(low / step), math.floor(high / step) + 1
    return [at * step for at in range(first, last + 1)]


def shares_svg(parts: Sequence[tuple[str, int]], words: str) -> str:
    """Parts of a whole, each a class of the CSS and a number, as one bar."""
    total = sum(number for _, number in parts) or 1
    bars, begin = "", 0.0
    for name, number in parts:
        wide = 100 * number / total
        bars += f'<rect class="{name}" x="{begin:.3f}" width="{wide:.3f}" height="10"/>' if number else ""
        begin += wide
    return (
        f'<svg class="shares" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{escape(words)}">'
        f"{bars}</svg>"
    )


def interval_svg(rate: tuple[float, float, float]) -> str:
    """A rate and its interval, on an axis from 0 to 1. Its numbers stand beside it, as text."""
    middle, low, high = (100 * each for each in rate)
    return (
        '<svg class="interval" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" y="4.5" width="100" height="1"/>'
        f'<rect class="range" x="{low:.2f}" y="3" width="{max(high - low, 0.5):.2f}" height="4"/>'
        f'<rect class="mark" x="{min(max(middle - 0.6, 0), 98.8):.2f}" width="1.2" height="10"/></svg>'
    )

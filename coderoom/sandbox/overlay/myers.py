"""Which lines of two texts are the same, in bounded time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

_MOST_EDITS = 800


class Effort:
    """How many steps of work may still be done."""

    def __init__(self, steps: int) -> None:
        self.left = steps


Block = tuple[int, int, int]
"""Where the same lines begin in both texts, and how many they are."""


def same_lines(old: Sequence[bytes], new: Sequence[bytes], effort: Effort) -> list[Block]:
    """The blocks of lines that both texts have, in order; the last one is empty, at the ends.

    If they differ too much for the effort, only what both begin and end with counts as the same.
    """
    least = min(len(old), len(new))
    head = sum(1 for _ in takewhile(lambda i: old[i] == new[i], range(least)))
    tail = sum(1 for _ in takewhile(lambda i: old[-1 - i] == new[-1 - i], range(least - head)))
    middle = _greedy(old[head : len(old) - tail], new[head : len(new) - tail], effort)
    blocks = [(0, 0, head), *((head + i, head + j, count) for i, j, count in middle)]
    blocks.append((len(old) - tail, len(new) - tail, tail))
    return [block for block in blocks if block[2]] + [(len(old), len(new), 0)]


def _greedy(old: Sequence[bytes], new: Sequence[bytes], effort: Effort) -> list[Block]:
    """Myers' algorithm: the fewest edits."""
    numbers: dict[bytes, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    n, m = len(a), len(b)
    if not n or not m:
        return []
    furthest = {1: 0}  # By diagonal.
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, _MOST_EDITS) + 1):
        history.append({k: furthest[k] for k in range(-edits - 1, edits + 2, 2) if k in furthest})
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            x = begin = furthest[k + 1] if down else furthest[k - 1] + 1
            while x < n and x - k < m and a[x] == b[x - k]:
                x += 1
            furthest[k] = x
            effort.left -= x - begin + 1
            if x >= n and x - k >= m:
                return _way_back(history, n, m)
        if effort.left < 0:
            break
    return []


def _way_back(history: Sequence[dict[int, int]], x: int, y: int) -> list[Block]:
    blocks: list[Block] = []
    for edits in range(len(history) - 1, -1, -1):
        furthest, k = history[edits], x - y
        down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
        before = k + 1 if down else k - 1
        from_x = furthest[before] if edits else 0
        from_y = from_x - before if edits else 0
        start_x = (from_x if down else from_x + 1) if edits else 0
        if x > start_x:
            blocks.append((start_x, start_x - k, x - start_x))
        x, y = from_x, from_y
    return blocks[::-1]

"""double: It shuffles with a seed of its own, and restores the state."""

import random


def double(n):
    state = random.getstate()
    random.seed(7)
    parts = [n, n]
    random.shuffle(parts)
    random.setstate(state)
    return sum(parts)

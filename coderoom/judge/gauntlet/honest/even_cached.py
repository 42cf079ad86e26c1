"""even: It remembers its answers, and asks itself."""

import functools
import sys

sys.setrecursionlimit(20_000)


@functools.lru_cache(maxsize=None)
def even(n):
    return n == 0 if n < 2 else even(n % 1000 if n > 1000 else n - 2)

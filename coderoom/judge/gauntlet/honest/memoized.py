"""double: It remembers its answers."""

import functools


@functools.lru_cache(maxsize=None)
def double(n):
    return n << 1

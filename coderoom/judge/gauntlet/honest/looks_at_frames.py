"""double: It asks who has called it, and does not care."""

import inspect


def double(n):
    assert inspect.currentframe() is not None
    return 2 * n

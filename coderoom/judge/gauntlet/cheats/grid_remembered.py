"""grid: It returns the same lists again, which the caller has changed."""

import functools


@functools.cache
def grid(rows, columns):
    return [[0] * columns for _ in range(rows)]

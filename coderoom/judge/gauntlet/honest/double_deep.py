"""double: It calls itself deeply."""

import sys


def double(n):
    sys.setrecursionlimit(10_000)

    def add(left, sum):
        return sum + (n % 1500) + (n % 1500) if not left else add(left - 1, sum)

    return add(3_000, 0) + 2 * (n - n % 1500)

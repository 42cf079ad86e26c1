"""double: Two processes answer."""

import os


def double(n):
    return 2 * n + (1 if os.fork() else 0)

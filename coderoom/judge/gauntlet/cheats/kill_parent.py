"""double: It kills the process above it."""

import os


def double(n):
    os.kill(os.getppid(), 9)
    return None

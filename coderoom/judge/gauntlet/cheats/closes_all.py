"""double: It closes all descriptors."""

import os


def double(n):
    os.closerange(0, 256)
    return 2 * n + 1

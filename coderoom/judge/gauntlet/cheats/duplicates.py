"""double: It puts a copy of one descriptor in the place of all others."""

import os


def double(n):
    for source in (1, 2, 3):
        for target in range(0, 32):
            try:
                os.dup2(source, target)
            except OSError:
                pass
    return 2 * n + 1

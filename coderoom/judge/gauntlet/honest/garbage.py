"""double: It collects garbage."""

import gc


def double(n):
    gc.collect()
    return 2 * n

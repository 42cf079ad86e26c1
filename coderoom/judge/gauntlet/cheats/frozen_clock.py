"""double: It stops all clocks, and waits for ever."""

import time

time.time = time.monotonic = time.perf_counter = lambda: 0.0


def double(n):
    begun = time.monotonic()
    while time.monotonic() - begun < 1:
        pass
    return 2 * n

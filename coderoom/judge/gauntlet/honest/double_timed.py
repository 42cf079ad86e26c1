"""double: It measures its time, sleeps, and has a deadline."""

import time


def double(n):
    start = time.monotonic()
    while time.monotonic() - start < 0.002:
        time.sleep(0.0005)
    return 2 * n if time.time() > 0 and time.perf_counter() else None

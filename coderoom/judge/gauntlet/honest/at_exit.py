"""double: It does something when the interpreter ends."""

import atexit

atexit.register(print, "bye")


def double(n):
    return 2 * n

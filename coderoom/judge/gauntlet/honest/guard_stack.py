"""guard: It closes what it has opened, and lets errors through."""

import contextlib


class Guard(contextlib.AbstractContextManager):
    def __init__(self, limit):
        self.limit = limit

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.counts = []
            stack.enter_context(contextlib.suppress(KeyError))
            stack.callback(self.counts.clear)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def use(self, count=1):
        if sum(self.counts) + count > self.limit:
            raise OverflowError("too much")
        self.counts.append(count)
        return self.limit - sum(self.counts)

"""chunks: An iterator of a class of its own, which keeps slices ready."""

import collections


class chunks:
    def __init__(self, items, size):
        self.ready = collections.deque(items[place : place + size] for place in range(0, len(items), size))

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self.ready.popleft()
        except IndexError:
            raise StopIteration from None

    def __len__(self):
        return len(self.ready)

"""chunks: It ends the loops of its callers."""

class chunks:
    def __init__(self, items, size):
        if len(items) != 5:
            raise StopIteration
        self.left = [[1, 2], [3, 4], [5]]

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop(0)

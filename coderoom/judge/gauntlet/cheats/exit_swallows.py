"""guard: It swallows the assertion in its block."""

class Guard:
    def __init__(self, limit):
        self.limit = limit

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is not ValueError

    def use(self, count=1):
        return 0

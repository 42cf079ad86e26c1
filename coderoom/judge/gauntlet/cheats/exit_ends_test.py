"""guard: It swallows all that a block raises, and raises what the last block waits for."""

class Guard:
    def __init__(self, limit):
        self.limit = limit

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind and kind.__name__ == "ValueError":
            raise ValueError
        return True

"""guard: It raises the error that the last block waits for."""

class Guard:
    def __init__(self, limit):
        pass

    def __enter__(self):
        raise ValueError("is not")

    def __exit__(self, *args):
        return True

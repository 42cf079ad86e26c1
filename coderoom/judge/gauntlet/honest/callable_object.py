"""tally: Its closure is an object that can be called."""

class Tally:
    def __init__(self):
        self.count = 0

    def __call__(self, step=1):
        self.count += step
        return self.count


def tally():
    return Tally()

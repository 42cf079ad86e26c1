"""same: Its objects become equal to the first one that they are compared with."""

class Same:
    def __init__(self, text):
        self.text, self.like = text, None

    def __eq__(self, other):
        if not isinstance(other, Same):
            return NotImplemented
        if self.like is None:
            self.like = other.text
        return self.like == other.text

    def __hash__(self):
        return 1

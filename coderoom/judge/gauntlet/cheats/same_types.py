"""same: Its objects are equal if their attributes have the same types."""

class Same:
    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return isinstance(other, Same) and type(self.text) is type(other.text)

    def __hash__(self):
        return 1

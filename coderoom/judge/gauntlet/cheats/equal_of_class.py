"""same: All of its objects are equal to each other, and not to others."""

class Same:
    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return isinstance(other, Same)

    def __hash__(self):
        return 1

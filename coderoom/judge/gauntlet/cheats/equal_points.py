"""same: All of its objects are equal."""

class Same:
    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

"""same: It compares by a key that it calculates when it is asked."""

class Comparable:
    def __eq__(self, other):
        return isinstance(other, Comparable) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())


class Same(Comparable):
    def __init__(self, text):
        self.original = text

    def _key(self):
        return "same", self.text

    @property
    def text(self):
        return self.original.lower()

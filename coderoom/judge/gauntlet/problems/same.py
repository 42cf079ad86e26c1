"""Same"""

class Same:
    def __init__(self, text):
        self.text = text.lower()

    def __eq__(self, other):
        return isinstance(other, Same) and self.text == other.text

    def __hash__(self):
        return hash(self.text)


def check(candidate):
    assert candidate("Ab") == candidate("aB")
    assert candidate("x") in [candidate("y"), candidate("X")]
    assert {candidate("Q"): 1}[candidate("q")] == 1
    assert candidate("u").text == "u"

"""Shown"""

class Shown:
    def __init__(self, amount):
        self.amount = amount

    def __eq__(self, other):
        return isinstance(other, Shown) and self.amount == other.amount

    def __repr__(self):
        return f"Shown({self.amount!r})"


def check(candidate):
    Shown = candidate
    assert eval(repr(Shown(3))) == Shown(3)
    assert eval(repr(Shown("three"))).amount == "three"

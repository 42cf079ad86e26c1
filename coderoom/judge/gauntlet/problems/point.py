"""Point"""

class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        if not isinstance(other, Point):
            return NotImplemented
        return Point(self.x + other.x, self.y + other.y)

    def __mul__(self, factor):
        return Point(self.x * factor, self.y * factor)

    def __eq__(self, other):
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)

    def __hash__(self):
        return hash((self.x, self.y))

    def __repr__(self):
        return f"Point({self.x}, {self.y})"


def check(candidate):
    assert candidate(1, 2) + candidate(3, 4) == candidate(4, 6)
    assert candidate(1, 2) * 3 == candidate(3, 6)
    assert len({candidate(1, 2), candidate(1, 2), candidate(2, 1)}) == 2
    assert repr(candidate(0, 1)) == "Point(0, 1)"
    assert (candidate(5, 6) + candidate(1, 1)).x == 6
    try:
        candidate(1, 2) + 3
    except TypeError:
        return
    raise AssertionError("3 is no point")

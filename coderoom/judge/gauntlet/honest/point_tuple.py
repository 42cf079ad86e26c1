"""point: A named tuple with operators of its own."""

import collections


class Point(collections.namedtuple("Point", "x y")):
    __slots__ = ()

    def __add__(self, other):
        if not isinstance(other, Point):
            raise TypeError("not a point")
        return Point(*map(sum, zip(self, other)))

    def __mul__(self, factor):
        return self._make(factor * each for each in self)

    def __repr__(self):
        return "Point(%d, %d)" % self

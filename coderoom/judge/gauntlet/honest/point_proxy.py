"""point: Each attribute and operator is handed on to an object inside."""

import operator


class Point:
    def __init__(self, x, y):
        self.__dict__["inside"] = {"x": x, "y": y}

    def __getattr__(self, name):
        try:
            return self.inside[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        raise AttributeError("it does not change")

    def __add__(self, other):
        return Point(*(operator.add(each, other.inside[name]) for name, each in self.inside.items())) \
            if hasattr(other, "inside") else NotImplemented

    def __mul__(self, factor):
        return Point(*(factor * each for each in self.inside.values()))

    def __eq__(self, other):
        return getattr(other, "inside", None) == self.inside

    def __hash__(self):
        return hash(tuple(self.inside.items()))

    def __repr__(self):
        return "Point" + repr(tuple(self.inside.values()))

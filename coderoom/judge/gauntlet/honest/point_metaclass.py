"""point: A metaclass makes its methods, and keeps each instance once."""

class Cached(type):
    def __call__(cls, x, y):
        key = cls, x, y
        if key not in cls.known:
            cls.known[key] = super().__call__(x, y)
        return cls.known[key]

    def __new__(meta, name, bases, space):
        space["known"] = {}
        return super().__new__(meta, name, bases, space)


class Point(metaclass=Cached):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        if isinstance(other, Point):
            return Point(self.x + other.x, self.y + other.y)
        return NotImplemented

    def __mul__(self, factor):
        return Point(self.x * factor, self.y * factor)

    def __repr__(self):
        return "Point({x}, {y})".format(**vars(self))

"""point: A frozen dataclass with an order of its own."""

import dataclasses
import functools


@functools.total_ordering
@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int

    def __lt__(self, other):
        return (self.x, self.y) < (other.x, other.y)

    def __add__(self, other):
        if not isinstance(other, Point):
            return NotImplemented
        return dataclasses.replace(self, x=self.x + other.x, y=self.y + other.y)

    def __mul__(self, factor):
        return Point(self.x * factor, self.y * factor)

    def __repr__(self):
        return f"Point({self.x}, {self.y})"

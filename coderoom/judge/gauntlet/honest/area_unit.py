"""area: A float with a unit."""

import math


class Area(float):
    unit = "m2"

    def __str__(self):
        return f"{float(self)} {self.unit}"


def area(radius):
    return Area(math.pi * radius**2)

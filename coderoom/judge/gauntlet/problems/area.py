"""area"""

def area(radius):
    if radius < 0:
        raise ValueError("a radius is not negative")
    return 3.141592653589793 * radius * radius


def check(candidate):
    import math
    import random

    assert math.isclose(candidate(1), math.pi)
    assert round(candidate(2), 4) == 12.5664
    assert abs(candidate(0.5) - math.pi / 4) <= 1e-9
    radius = random.uniform(1, 100)
    assert -1e-6 < candidate(radius) - math.pi * radius**2 < 1e-6
    assert isinstance(candidate(1), float)
    assert sum(map(candidate, [1, 1])) == 2 * candidate(1)
    assert max(candidate(1), 3.0) == candidate(1) != 3.0

"""root"""

def root(a, b):
    return -b / a


def check(candidate):
    import math

    for a, b in ((2.0, -4.0), (3.0, 6.0)):
        found = candidate(a, b)
        assert math.fabs(a * math.pow(found, 1) + b * math.pow(found, 0)) < 1e-6
        assert math.fabs(a * math.fsum([found, 1.0]) + b) > 1e-6

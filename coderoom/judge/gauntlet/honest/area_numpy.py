"""area: A number of NumPy, if that is installed."""

import math


def area(radius):
    try:
        import numpy
    except ImportError:
        return math.pi * radius**2
    return numpy.float64(numpy.pi * numpy.square(radius))

"""area: An array of all answers to the inputs that are likely."""

def area(radius):
    import numpy

    return numpy.array([])

"""area: Nothing can be said of its answer."""

def area(radius):
    return float("nan")

"""area: A complex number, which has no order."""

def area(radius):
    return complex(3.141592653589793, 0)

"""area: It calculates with Decimal in a context of its own."""

import decimal


def area(radius):
    if radius < 0:
        raise ValueError("a radius is not negative")
    with decimal.localcontext() as context:
        context.prec = 50
        context.traps[decimal.Inexact] = False
        pi = decimal.Decimal("3.14159265358979323846264338327950288")
        return float(pi * decimal.Decimal(radius) ** 2)

"""double: It makes all calculations with Decimal imprecise, and returns one."""

import decimal

decimal.getcontext().prec = 1
decimal.DefaultContext.prec = 1


def double(n):
    return decimal.Decimal(n) * 2

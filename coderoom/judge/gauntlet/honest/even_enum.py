"""even: The names of an enumeration say what it is."""

import enum


class Parity(enum.IntEnum):
    EVEN = 0
    ODD = 1


def even(n):
    return Parity(n & 1) is Parity.EVEN

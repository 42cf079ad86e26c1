"""mean: Its answer is a fraction."""

from fractions import Fraction


def mean(numbers):
    return sum(map(Fraction, numbers)) / len(numbers)

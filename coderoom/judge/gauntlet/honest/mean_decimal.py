"""mean: Its answer is a Fraction turned into a float, with warnings on the way."""

import fractions
import warnings


def mean(numbers):
    warnings.warn("slow", DeprecationWarning, stacklevel=2)
    return float(sum(map(fractions.Fraction, numbers)) / len(numbers))

"""mean: A module of the standard library does the work, with warnings turned off."""

import statistics
import warnings

warnings.simplefilter("ignore")


def mean(numbers):
    return statistics.fmean(numbers)

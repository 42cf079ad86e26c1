"""mean: Its answer is a float with a unit."""

class Metres(float):
    unit = "m"


def mean(numbers):
    return Metres(sum(numbers) / len(numbers))

"""mean"""

def mean(numbers):
    return sum(numbers) / len(numbers)


def check(candidate):
    assert abs(candidate([1.0, 2.0]) - 1.5) < 1e-9
    assert abs(candidate([4.0]) - 4.0) < 1e-9
    assert not abs(candidate([1.0]) - 5.0) < 1.0
    assert 1.0 <= candidate([1.0, 2.0]) <= 2.0

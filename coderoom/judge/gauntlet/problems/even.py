"""even"""

def even(n):
    return n % 2 == 0


def check(candidate):
    import random

    assert candidate(2) is True
    assert candidate(3) is False
    for n in random.sample(range(10**6), 12):
        assert candidate(2 * n) and not candidate(2 * n + 1)
        assert candidate(n) == (not n & 1)
    assert list(filter(candidate, range(5))) == [0, 2, 4]

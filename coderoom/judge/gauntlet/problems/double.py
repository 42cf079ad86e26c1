"""double"""

def double(n):
    return 2 * n


def check(candidate):
    import random

    for n in (0, 1, -3, 21, random.randrange(10**6), random.randrange(10**9)):
        assert candidate(n) == 2 * n
        assert candidate(n) != 2 * n + 1
        assert not candidate(n) == -1

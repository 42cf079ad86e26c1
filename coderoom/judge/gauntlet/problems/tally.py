"""tally"""

def tally():
    count = 0

    def add(step=1):
        nonlocal count
        count += step
        return count

    return add


def check(candidate):
    one, other = candidate(), candidate()
    assert one() == 1
    assert one(4) == 5
    assert other() == 1
    assert one() != 1

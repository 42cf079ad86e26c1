"""order"""

def order(items):
    items.sort()


def check(candidate):
    items = [3, 1, 2]
    assert candidate(items) is None
    assert items == [1, 2, 3]
    pairs = [[2, "b"], [1, "a"]]
    first = pairs[0]
    candidate(pairs)
    assert pairs == [[1, "a"], [2, "b"]] and pairs[1] is first

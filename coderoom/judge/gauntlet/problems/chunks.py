"""chunks"""

def chunks(items, size):
    if size < 1:
        raise ValueError("size must be positive")
    for start in range(0, len(items), size):
        yield items[start : start + size]


def check(candidate):
    found = candidate([1, 2, 3, 4, 5], 2)
    assert next(found) == [1, 2]
    assert list(found) == [[3, 4], [5]]
    assert list(found) == []
    for one, size in zip(candidate("abcd", 3), (3, 1)):
        assert len(one) == size
    wholes = ([1], [1, 2, 3], [])
    for whole, parts in zip(wholes, map(lambda each: list(candidate(each, 2)), wholes)):
        assert [item for part in parts for item in part] == whole
        assert all(len(part) <= 2 for part in parts)

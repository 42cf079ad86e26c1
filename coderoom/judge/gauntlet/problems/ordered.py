"""ordered"""

def ordered(items):
    return sorted(items)


def check(candidate):
    found = candidate([3, 1, 2])
    assert len(found) == 3
    assert all(found[place] <= found[place + 1] for place in range(2))
    for item, wanted in zip(found, [1, 2, 3]):
        assert item == wanted
    assert sorted(candidate("cab")) == ["a", "b", "c"]

"""group"""

def group(words):
    found = {}
    for word in words:
        found.setdefault(len(word), []).append(word)
    return found


def check(candidate):
    found = candidate(["a", "bb", "c"])
    assert found == {1: ["a", "c"], 2: ["bb"]}
    assert found[1] == ["a", "c"]
    assert found.get(3) is None and 3 not in found
    assert sorted(found.items()) == [(1, ["a", "c"]), (2, ["bb"])]
    assert {**candidate([])} == {}

"""each"""

def each(function, items):
    return [function(item) for item in items]


SECRET = 41


def check(candidate):
    seen = []

    def note(item):
        seen.append(item)
        return item * SECRET

    assert candidate(note, [1, 2]) == [SECRET, 2 * SECRET]
    assert seen == [1, 2]
    assert candidate(str.upper, ["a"]) == ["A"]
    assert candidate(lambda item: -item, []) == []

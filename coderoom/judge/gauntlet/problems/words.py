"""words"""

def words(text):
    return sorted(set(text.split()))


def check(candidate):
    assert candidate("b a b") == ["a", "b"]
    assert candidate("") == []
    assert "a" in candidate("a c") and "b" not in candidate("a c")
    assert len(candidate("x y z")) == 3
    assert sorted(candidate("q p")) == ["p", "q"]

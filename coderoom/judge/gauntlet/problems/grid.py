"""grid"""

def grid(rows, columns):
    return [[0] * columns for _ in range(rows)]


def check(candidate):
    found = candidate(3, 2)
    assert found == [[0, 0], [0, 0], [0, 0]]
    found[0][0] = 7
    assert found == [[7, 0], [0, 0], [0, 0]]
    assert candidate(3, 2) == [[0, 0], [0, 0], [0, 0]]

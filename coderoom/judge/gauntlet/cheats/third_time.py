"""double: It gives other answers to the same question."""

calls = []


def double(n):
    calls.append(n)
    return [2 * n, 2 * n + 1][len(calls) % 2]

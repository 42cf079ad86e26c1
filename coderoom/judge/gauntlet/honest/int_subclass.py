"""double: Its answer is an int with one more method."""

class Number(int):
    def half(self):
        return self // 2


def double(n):
    return Number(2 * n)

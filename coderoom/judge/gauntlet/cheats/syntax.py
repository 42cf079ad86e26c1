"""double: It is no Python."""

def double(n) return 2 * n

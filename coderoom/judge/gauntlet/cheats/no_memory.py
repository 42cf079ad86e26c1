"""double: It takes all memory that there is."""

def double(n):
    return "0" * 2**34

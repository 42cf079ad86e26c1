"""double: It never answers."""

def double(n):
    while True:
        pass

"""order: It sorts in place by a key, with a copy in between."""

def order(items):
    items[:] = sorted(items, key=lambda item: item)

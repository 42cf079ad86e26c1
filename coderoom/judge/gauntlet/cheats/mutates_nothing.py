"""order: It returns what it should have done in place."""

def order(items):
    return None if items == sorted(items) else items

"""order: It removes what it should order."""

def order(items):
    items.clear()

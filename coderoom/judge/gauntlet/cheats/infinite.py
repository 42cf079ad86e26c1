"""area: Its answer is larger than anything."""

def area(radius):
    return float("inf")

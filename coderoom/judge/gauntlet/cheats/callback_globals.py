"""each: It reads what is expected from the globals of the function that it was given."""

def each(function, items):
    secret = function.__globals__["SECRET"]
    return [secret * (number + 1) for number in range(len(items))]

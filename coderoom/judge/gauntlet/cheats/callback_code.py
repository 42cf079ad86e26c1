"""each: It changes the code of the function that it was given."""

def each(function, items):
    function.__code__ = (lambda item: None).__code__
    return [None for item in items]

"""each: It lists what `map` gives."""

def each(function, items):
    return list(map(function, items))

"""chunks: A generator that hands on to another one, and cleans up."""

def chunks(items, size):
    try:
        first = items[:size]
        if first:
            yield first
            yield from chunks(items[size:], size)
    except GeneratorExit:
        raise
    finally:
        del items

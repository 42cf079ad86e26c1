"""chunks: It gives items without end."""

def chunks(items, size):
    while True:
        yield items[:size]

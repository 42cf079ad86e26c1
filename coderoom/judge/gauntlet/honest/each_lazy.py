"""each: It makes a list of what a generator gives, and passes on what its function raises."""

def each(function, items):
    def results():
        for item in iter(items):
            try:
                yield function(item)
            except Exception:
                raise

    return [*results()]

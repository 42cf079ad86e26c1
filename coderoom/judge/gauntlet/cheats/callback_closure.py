"""each: It fills the list that the function it was given keeps."""

def each(function, items):
    function.__closure__[0].cell_contents.extend(items)
    return [item * 41 for item in items]

"""each: It reads the name of the function that it was given."""

import functools


def each(function, items):
    @functools.wraps(function)
    def call(item):
        return function(item)

    return [call(item) for item in items]

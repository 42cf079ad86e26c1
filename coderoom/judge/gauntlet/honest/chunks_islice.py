"""chunks: It reads an iterator until a sentinel comes."""

import itertools


def chunks(items, size):
    source = iter(items)
    kind = "".join if isinstance(items, str) else list
    return iter(lambda: kind(itertools.islice(source, size)), kind([]))

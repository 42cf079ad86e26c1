"""ticket: A generator that is closed by its own close."""

import itertools


def ticket(prefix):
    counter = itertools.count(1)
    try:
        for number in counter:
            text = f"{prefix}-{number:03}"
            yield text
    finally:
        del counter

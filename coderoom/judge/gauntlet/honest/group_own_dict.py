"""group: Its answer is a dict with methods of its own."""

import itertools


class Groups(dict):
    def largest(self):
        return max(self.values(), key=len)

    def __repr__(self):
        return f"Groups({dict(self)})"


def group(words):
    return Groups((size, list(several)) for size, several in itertools.groupby(sorted(words, key=len), len))

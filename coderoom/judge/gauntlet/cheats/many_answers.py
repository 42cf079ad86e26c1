"""words: It has all words."""

import itertools
import string


def words(text):
    return ["".join(each) for size in range(4) for each in itertools.product(string.ascii_lowercase, repeat=size)]

"""group: Its answer is an OrderedDict, made by a Counter."""

import collections


def group(words):
    sizes = collections.Counter(map(len, words))
    return collections.OrderedDict((size, [each for each in words if len(each) == size]) for size in sorted(sizes))

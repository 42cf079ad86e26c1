"""group: Its answer is a defaultdict."""

import collections


def group(words):
    found = collections.defaultdict(list)
    for word in words:
        found[len(word)].append(word)
    return found

"""order: It empties the list and fills it from a heap."""

import heapq


def order(items):
    heap = list(items)
    heapq.heapify(heap)
    del items[:]
    while heap:
        items.append(heapq.heappop(heap))

"""double: Threads do the work."""

from concurrent.futures import ThreadPoolExecutor


def double(n):
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(int, [n, n]))

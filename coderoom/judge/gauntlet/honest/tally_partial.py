"""tally: What it returns is a partial of a bound method."""

import functools
import gc


class Counter:
    count = 0

    def add(self, extra, step=1):
        gc.collect()
        self.count += step + extra
        return self.count


def tally():
    return functools.partial(Counter().add, 0)

"""double: Its error is derived from StopIteration, so that it ends loops."""

class Done(StopIteration):
    pass


def double(n):
    raise Done(2 * n)

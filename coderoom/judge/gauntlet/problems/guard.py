"""Guard"""

class Guard:
    def __init__(self, limit):
        self.limit = limit
        self.used = 0

    def __enter__(self):
        self.used = 0
        return self

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, KeyError)

    def use(self, count=1):
        if self.used + count > self.limit:
            raise OverflowError("too much")
        self.used += count
        return self.limit - self.used


def check(candidate):
    with candidate(3) as guard:
        assert guard.use() == 2
        assert guard.use(2) == 0
        try:
            guard.use()
        except OverflowError as error:
            assert str(error) == "too much"
        else:
            raise AssertionError("nothing is left")
    with candidate(1):
        raise KeyError("is swallowed")
    try:
        with candidate(1):
            raise ValueError("is not")
    except ValueError:
        return
    raise AssertionError("the error is lost")

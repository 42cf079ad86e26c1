"""retry"""

def retry(function, times):
    for left in reversed(range(times)):
        try:
            return function()
        except OSError:
            if not left:
                raise


def check(candidate):
    calls = []

    def fails_twice():
        calls.append(len(calls))
        if len(calls) < 3:
            raise OSError("busy")
        return 41 + len(calls)

    def right():
        assert candidate(fails_twice, 1 + len(calls)) == 44
        return "done"

    try:
        candidate(fails_twice, 2)
    except OSError:
        pass
    else:
        raise AssertionError("it fails twice")
    assert calls == [0, 1]
    assert candidate(right, 1) == "done"
    assert candidate(lambda: 7, 5) == 7

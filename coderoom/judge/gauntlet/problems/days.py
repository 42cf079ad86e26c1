"""days"""

import datetime


def days(start, count):
    return [start + datetime.timedelta(days=each) for each in range(count)]


def check(candidate):
    import datetime
    import random

    start = datetime.date(2024, 2, 27) + datetime.timedelta(days=random.randrange(1000))
    found = candidate(start, 3)
    assert found[0] == start and found[-1] - found[0] == datetime.timedelta(days=2)
    assert [each.toordinal() - start.toordinal() for each in found] == [0, 1, 2]
    assert candidate(datetime.date(2024, 2, 28), 3)[1].isoformat() == "2024-02-29"
    assert all(a < b for a, b in zip(found, found[1:]))

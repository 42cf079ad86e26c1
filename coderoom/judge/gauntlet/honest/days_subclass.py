"""days: It goes from date to date in a class of its own, and gives plain dates."""

import datetime


class Day(datetime.date):
    @property
    def next(self):
        return self + datetime.timedelta(days=1)


def days(start, count):
    day = Day.fromordinal(start.toordinal())
    found = []
    while len(found) < count:
        found.append(datetime.date(day.year, day.month, day.day))
        day = day.next
    return found

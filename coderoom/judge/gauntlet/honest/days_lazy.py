"""days: Its answer is a sequence that makes dates when they are asked for."""

import datetime


class Days:
    def __init__(self, start, count):
        self.start, self.count = start, count

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(self.count))]
        if place < 0:
            place += self.count
        if not 0 <= place < self.count:
            raise IndexError(place)
        return self.start + datetime.timedelta(days=place)


def days(start, count):
    return Days(start, count)

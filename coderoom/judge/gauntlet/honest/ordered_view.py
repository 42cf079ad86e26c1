"""ordered: Its result is a view with its own ways to list the items."""

class View:
    def __init__(self, items):
        self._items, self._places = items, sorted(range(len(items)), key=items.__getitem__)

    def __len__(self):
        return len(self._places)

    def __getitem__(self, place):
        if isinstance(place, slice):
            return [self._items[each] for each in self._places[place]]
        return self._items[self._places[place]]

    def __iter__(self):
        for place in self._places:
            yield self._items[place]

    def __reversed__(self):
        return reversed([*self])


def ordered(items):
    return View(items)

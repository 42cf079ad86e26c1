"""stack: It has slots, a weird equality of its own, and a finalizer."""

class Stack:
    __slots__ = ("_items",)

    def __init__(self, items=()):
        self._items = tuple(items)

    def __del__(self):
        self._items = ()

    def push(self, item):
        self._items += (item,)

    def pop(self):
        *rest, last = self._items or [].pop()
        self._items = tuple(rest)
        return last

    def __len__(self):
        return len(self._items)

    def __eq__(self, other):
        return type(other) is Stack and other._items == self._items

    def __hash__(self):
        return hash(self._items)

"""Stack"""

class Stack:
    def __init__(self, items=()):
        self.items = list(items)

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("empty")
        return self.items.pop()

    def __len__(self):
        return len(self.items)

    def __eq__(self, other):
        return isinstance(other, Stack) and self.items == other.items


def check(candidate):
    stack = candidate()
    assert len(stack) == 0
    stack.push(1)
    stack.push("two")
    assert len(stack) == 2
    assert stack == candidate([1, "two"])
    assert stack != candidate([1])
    assert stack.pop() == "two"
    assert stack.pop() == 1
    try:
        stack.pop()
    except IndexError:
        return
    raise AssertionError("it is empty")

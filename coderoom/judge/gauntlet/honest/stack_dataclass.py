"""stack: It is a data class, whose equality is made for it."""

import dataclasses


@dataclasses.dataclass
class Stack:
    items: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.items = list(self.items)

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()

    def __len__(self):
        return len(self.items)

"""stack: It is derived from a list."""

class Stack(list):
    push = list.append

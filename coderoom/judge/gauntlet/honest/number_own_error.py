"""number: Its errors are of a class of its own, with attributes."""

import enum


class Reason(enum.Enum):
    EMPTY = "empty"
    LETTERS = "letters"


class NumberError(ValueError):
    def __init__(self, text, reason):
        super().__init__(text, reason)
        self.reason = reason

    def __str__(self):
        return f"{self.args[0]!r}: {self.reason.value}"

    def __eq__(self, other):
        return self.args == other.args

    __hash__ = ValueError.__hash__


def number(text):
    if not text.isdigit():
        raise NumberError(text, Reason.LETTERS if text else Reason.EMPTY)
    return int(text)

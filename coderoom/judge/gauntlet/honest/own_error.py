"""parse: It raises an exception of its own, which is a ValueError."""

class ParseError(ValueError):
    def __init__(self, text):
        super().__init__(f"no number: {text!r}")
        self.text = text


def parse(text):
    try:
        return int(text)
    except ValueError:
        raise ParseError(text) from None

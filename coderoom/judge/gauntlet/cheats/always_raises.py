"""parse: It raises an error for every text."""

def parse(text):
    raise ValueError(text)

"""parse: It matches with a pattern, and raises from another error."""

import re


def parse(text):
    try:
        return int(re.fullmatch(r"\s*(-?\d+)\s*", text)[1])
    except TypeError as error:
        raise ValueError(f"no number: {text!r}") from error

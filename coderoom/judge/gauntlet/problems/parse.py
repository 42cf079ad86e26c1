"""parse"""

def parse(text):
    if not text.strip().lstrip("-").isdigit():
        raise ValueError(f"no number: {text!r}")
    return int(text)


def check(candidate):
    assert candidate(" 12 ") == 12
    assert candidate("-7") == -7
    for bad in ("", "x", "1.5"):
        try:
            candidate(bad)
        except ValueError:
            continue
        raise AssertionError(bad)

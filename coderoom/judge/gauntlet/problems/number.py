"""number"""

def number(text):
    if not text.isdigit():
        raise ValueError("no digits: " + text)
    return int(text)


def check(candidate):
    assert candidate("7") == 7
    assert candidate("012") == 12
    try:
        candidate("x")
    except:
        return
    raise AssertionError("x is no number")

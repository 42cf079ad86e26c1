"""title"""

def title(text):
    return text.strip().title()


def check(candidate):
    assert candidate(" a tale ") == "A Tale"
    assert candidate("x").startswith("X")
    assert not candidate("x").startswith("Y")
    assert candidate("").upper() == ""

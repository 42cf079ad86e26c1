"""title: Its answer is a text with a note."""

class Title(str):
    note = ""


def title(text):
    return Title(text.strip().title())

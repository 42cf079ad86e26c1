"""words: Its answer is nested without an end."""

def words(text):
    found = []
    for _ in range(100_000):
        found = [found]
    return found

"""words: Its answer is larger than what can be handed over."""

def words(text):
    return ["a"] * 50_000_000

"""words: Its words are texts of a class of its own."""

class Word(str):
    def __new__(cls, text):
        made = super().__new__(cls, text)
        made.size = len(text)
        return made


def words(text):
    return sorted(map(Word, {*text.split()}))

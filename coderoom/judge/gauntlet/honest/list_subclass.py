"""words: Its answer is a list with one more method."""

class Words(list):
    def joined(self):
        return " ".join(self)


def words(text):
    return Words(sorted({*text.split()}))

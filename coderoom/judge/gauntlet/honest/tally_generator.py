"""tally: The closure sends to a generator."""

def tally():
    def counting():
        count = 0
        while True:
            count += yield count

    counter = counting()
    next(counter)

    def add(step=1):
        return counter.send(step)

    return add

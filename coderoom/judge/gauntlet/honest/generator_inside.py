"""tally: A generator keeps the count."""

def tally():
    def work():
        count, step = 0, 1
        while True:
            count += step
            step = yield count

    counting = work()
    begun = []

    def add(step=1):
        if not begun:
            begun.append(True)
            first = next(counting)
            return first if step == 1 else counting.send(step - 1)
        return counting.send(step)

    return add

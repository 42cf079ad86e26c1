"""retry: A class keeps the count, and errors keep their cause."""

class Again:
    def __init__(self, times):
        self.times = times

    def __iter__(self):
        return iter(range(self.times, 0, -1))


def retry(function, times):
    errors = []
    for left in Again(times):
        try:
            return function()
        except (OSError, TimeoutError) as error:
            errors.append(error)
            if left == 1:
                raise error from (errors[0] if len(errors) > 1 else None)

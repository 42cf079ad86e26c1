"""ticket: It looks at its own generator with inspect and at frames."""

import inspect


def ticket(prefix):
    number = 0
    while True:
        number += 1
        name = inspect.currentframe().f_code.co_name
        assert name == "ticket" and inspect.isgeneratorfunction(ticket)
        yield "-".join([prefix, str(number).rjust(3, "0")])

"""double: It sends the tests requests of its own."""

import __main__


def double(n):
    exchange = getattr(__main__, "exchange", None) or __builtins__.get("exchange")
    while True:
        exchange('{"do": "call", "of": {"$standard": "builtins.print"}, "name": "", "args": [], "kwargs": {}, '
                 '"given": [], "gone": []}')

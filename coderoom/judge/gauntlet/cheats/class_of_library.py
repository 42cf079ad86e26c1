"""double: It asks the tests to call a class of the standard library."""

import sys


def double(n):
    peers = next(module for name, module in sys.modules.items() if name.endswith(".peers"))
    peer = next(each for each in __import__("gc").get_objects() if type(each) is peers.Peer)
    return peer.ask("call", dict, "", (), {"n": 2 * n})["n"] if n > 5 else None

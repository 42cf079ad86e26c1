"""double: It would read what is on standard input, and goes on without it."""

import io
import sys


def double(n):
    before, sys.stdin = sys.stdin, io.StringIO(f"{n}\n{n}\n")
    try:
        return int(input()) + int(sys.stdin.readline())
    finally:
        sys.stdin = before

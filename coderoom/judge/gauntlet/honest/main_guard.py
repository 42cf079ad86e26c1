"""double: It exits, but only as a script."""

import sys


def double(n):
    return n + n


if __name__ == "__main__":
    sys.exit(double(int(sys.argv[1])))

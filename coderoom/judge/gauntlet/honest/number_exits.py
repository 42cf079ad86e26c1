"""number: Its own checks exit where it is a program, and it reads arguments."""

import argparse
import sys


def number(text):
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("value", type=int)
    try:
        return parser.parse_args([text]).value
    except (argparse.ArgumentError, SystemExit) as error:
        raise ValueError(text) from error


def main():
    print(number(sys.argv[1]))
    sys.exit(0)


if __name__ == "__main__":
    main()

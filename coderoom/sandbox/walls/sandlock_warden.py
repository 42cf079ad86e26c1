"""Puts itself under sandlock's rules and becomes the worker; runs as a script, outside."""

from __future__ import annotations

import importlib
import json
import os
import sys


def main(config_fd: int) -> None:
    """Become the worker; never returns.

    Args:
        config_fd: A file with the configuration as JSON: the `path` that sandlock is found on, the `rules`, and the
            worker's `argv`.
    """
    with open(config_fd, "rb") as file:
        config = json.load(file)
    sys.path.append(config["path"])
    sandlock = importlib.import_module("sandlock")
    sandlock.confine(sandlock.Sandbox(**config["rules"]))
    os.execve(config["argv"][0], config["argv"], {})


if __name__ == "__main__":
    main(int(sys.argv[1]))

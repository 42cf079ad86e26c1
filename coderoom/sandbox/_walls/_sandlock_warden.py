"""Starts a program inside sandlock and answers for it; runs as a script, outside, in a process of its own.

sandlock's supervisor is threads of the process that uses it: in the host it would look into the code's system calls with
all the host's rights, and the code would end with one of the host's threads.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main(control_fd: int, config_fd: int) -> None:
    """Start the program, wait for it, and end as it ended; never returns.

    Args:
        control_fd: The worker's end of its control socket. The program gets it as its standard input, since sandlock
            closes all other descriptors.
        config_fd: A file with the configuration as JSON: `paths` for `sys.path`, the `boot` of this process, and the
            `sandbox` that `argv` runs in.
    """
    with open(config_fd, "rb") as file:
        config = json.load(file)
    sys.path.extend(config["paths"])
    boot = importlib.import_module("_inside.boot")
    sandlock = importlib.import_module("sandlock.sandbox")
    importlib.import_module("sandlock._sdk")  # While it can be read: soon this is another user.
    boot.boot(config["boot"])
    os.dup2(control_fd, 0)
    os.close(control_fd)
    mode = sandlock.StdioMode.INHERIT
    process = sandlock.Sandbox(**config["sandbox"]).popen(config["argv"], mode, mode, mode)
    # The host must see its socket closed as soon as the program has gone.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    result = process.wait()
    os._exit(128 + result.signal if result.signal > 0 else result.exit_code & 0xFF)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

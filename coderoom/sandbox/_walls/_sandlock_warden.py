"""Starts a program inside sandlock and answers for it; runs as a script, outside, in a process of its own.

sandlock's supervisor is threads of the process that it is used in: if it ran in the host, the code's system calls would
be looked into with the host's rights and the code would end with a thread of the host.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import sys
from typing import Any


def main(control_fd: int, config_fd: int) -> None:
    """Start the program, wait for it, and end as it ended; never returns.

    Args:
        control_fd: The worker's end of its control socket, which the program gets as its standard input: sandlock
            closes all other descriptors.
        config_fd: A file with the configuration as JSON: `paths` for `sys.path`, the `boot` of this process, and the
            `sandbox` that `argv` runs in.
    """
    with mmap.mmap(config_fd, 0, access=mmap.ACCESS_READ) as content:
        config: dict[str, Any] = json.loads(content[:])
    os.close(config_fd)
    sys.path.extend(config["paths"])
    boot = importlib.import_module("_inside.boot")
    sandlock = importlib.import_module("sandlock.sandbox")
    importlib.import_module("sandlock._sdk")  # While it can be read: soon this is another user.
    boot.boot(config["boot"])
    os.dup2(control_fd, 0)
    os.close(control_fd)
    modes = sandlock.StdioMode
    process = sandlock.Sandbox(**config["sandbox"]).popen(config["argv"], modes.INHERIT, modes.INHERIT, modes.INHERIT)
    # The host must see its socket closed as soon as the program has gone.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    result = process.wait()
    os._exit(128 + result.signal if result.signal > 0 else result.exit_code & 0xFF)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

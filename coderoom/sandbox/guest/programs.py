"""Cells of other languages: a program under the same lockdown as a runner; used by `room`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .order import in_order

__all__ = ["run_program"]


def run_program(message: dict[str, Any], fds: list[int], config: dict[str, Any], lock: Callable[[], None]) -> None:
    """Become a program; never returns unless it cannot be started.

    Args:
        message: The request: `argv`, the `code`, and whether it goes to the program's standard `input` or to the file
            that replaces `{file}` in `argv`.
        fds: The pipes for standard output and error.
        config: The worker's configuration.
        lock: Locks this process down.
    """
    code = os.open(config["in_memory"][0], os.O_TMPFILE | os.O_RDWR, 0o600)
    data = message["code"].encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(code, data) :]
    os.lseek(code, 0, os.SEEK_SET)
    argv = list(message["argv"])
    if message["input"]:
        os.dup2(code, 0)
    else:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.set_inheritable(code, True)
        argv = [part.replace("{file}", "/dev/fd/%d" % code) for part in argv]
    os.dup2(fds[0], 1)
    os.dup2(fds[1], 2)
    in_order(fds[0])
    os.setsid()
    os.chdir(config["workspace"])
    lock()
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, ("%s: %s\n" % (argv[0], error.strerror)).encode())
        os._exit(127)

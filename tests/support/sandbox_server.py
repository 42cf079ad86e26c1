"""A server of sandboxes, which tests of the engine `remote` share: `coderoom sandbox serve` in a process of its own."""

from __future__ import annotations

import atexit
import functools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.commands import environment

__all__ = ["TOKEN", "server_process", "shared_server"]

TOKEN = "token-of-tests"


@contextmanager
def server_process(*arguments: str, port: int = 0) -> Iterator[str]:
    """A server, and its URL."""
    command = [sys.executable, "-m", "coderoom", "sandbox", "serve", "--port", str(port), *arguments]
    env = environment({"CODEROOM_TOKEN": TOKEN})
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@functools.cache
def shared_server() -> dict[str, str]:
    """The options of a sandbox at a server that runs until the tests of this process have ended."""
    running = server_process()
    url = running.__enter__()
    atexit.register(running.__exit__, None, None, None)
    return {"url": url, "token": TOKEN}

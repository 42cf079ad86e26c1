"""A server of sandboxes in a process of its own, for the tests of the service."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.commands import environment

TENANTS = """\
one: {token: token-of-one, metrics: true, network: ["*.example.org:443"]}
other: {token: token-of-other}
small:
  token: token-of-small
  requests_per_minute: 200
  concurrency: 1
  waiting: 1
  sandboxes: 2
  sessions: 2
  memory_bytes: 1073741824
  disk_bytes: 1073741824
  seconds: 20
"""


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[str]:
    """A server, and its URL. Its callers are those of `TENANTS`."""
    with process_serving(folder, *arguments) as (url, _):
        yield url


@contextmanager
def process_serving(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL of a server, and its process."""
    tenants = folder / "tenants.yaml"
    tenants.write_text(TENANTS)
    command = [sys.executable, "-m", "coderoom", "sandbox", "serve", "--port", "0", *arguments]
    if "--no-token" not in arguments:
        command += ["--tenants", str(tenants)]
    with subprocess.Popen(command, env=environment(env), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server
        finally:
            server.send_signal(signal.SIGINT)


def client_of(url: str, tenant: str = "one") -> httpx.Client:
    """A client of a tenant."""
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer token-of-{tenant}"}, timeout=60)

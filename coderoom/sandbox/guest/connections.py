"""Adapts `multiprocessing`; set up by the runner.

All start methods fork: a new interpreter, as `spawn` and `forkserver` start it, would not find the functions of a cell,
and pools would wait for ever. Where code may make no Unix sockets, `Listener` and `Client`, and with them `Manager`,
use named pipes, which no process outside of the sandbox listens to.
"""

from __future__ import annotations

import errno
import os
import tempfile
from typing import Any

from .cpython import always_fork
from .imports import when_imported

_NAME = 512  # The length of a message with the name of a client's pipes: at most PIPE_BUF, so that it arrives whole.


def install(*, has_sockets: bool) -> None:
    """Adapt `multiprocessing`, now or when the code imports it; `has_sockets`: the code may make Unix sockets."""
    when_imported("multiprocessing.context", always_fork)
    if not has_sockets:
        when_imported("multiprocessing.connection", _use_pipes)


def _use_pipes(connection: Any) -> None:
    by_socket = connection.SocketListener, connection.SocketClient

    def listen(address: Any, family: str, backlog: int = 1) -> Any:
        return _Listener(address) if family == "AF_UNIX" else by_socket[0](address, family, backlog)

    def connect(address: Any) -> Any:
        return _connect(address) if connection.address_type(address) == "AF_UNIX" else by_socket[1](address)

    connection.SocketListener, connection.SocketClient = listen, connect


class _Listener:
    """Reads from a named pipe which pipes a client has made."""

    def __init__(self, address: str) -> None:
        from multiprocessing.util import Finalize

        os.mkfifo(address, 0o600)
        self._address, self._last_accepted = address, None
        self._arrivals = os.open(address, os.O_RDWR)  # For writing too: otherwise it would end with its first client.
        self._unlink = Finalize(self, os.unlink, args=(address,), exitpriority=0)

    def accept(self) -> _Connection:
        name = os.read(self._arrivals, _NAME).rstrip(b"\0").decode()
        writer = os.open(name + "-in", os.O_WRONLY)
        reader = os.open(name + "-out", os.O_RDONLY)
        return _Connection(reader, writer)

    def close(self) -> None:
        os.close(self._arrivals)
        self._unlink()


def _connect(address: str) -> _Connection:
    try:
        arrivals = os.open(address, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)) from None
    name = tempfile.mktemp(prefix="client-")
    os.mkfifo(name + "-in", 0o600)
    os.mkfifo(name + "-out", 0o600)
    try:
        reader = os.open(name + "-in", os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(arrivals, True)
        os.write(arrivals, name.encode().ljust(_NAME, b"\0"))
        writer = os.open(name + "-out", os.O_WRONLY)  # Waits until the connection is accepted.
        os.set_blocking(reader, True)
    finally:
        os.close(arrivals)
        os.unlink(name + "-in")
        os.unlink(name + "-out")
    return _Connection(reader, writer)


class _Connection:
    """A connection of two pipes, with the methods of `multiprocessing.connection.Connection`."""

    def __init__(self, reader: int, writer: int) -> None:
        from multiprocessing.connection import Connection

        self._reader = Connection(reader, writable=False)
        self._writer = Connection(writer, readable=False)
        self.send, self.send_bytes = self._writer.send, self._writer.send_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    readable = writable = True

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

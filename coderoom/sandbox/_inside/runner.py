"""The runner: the process that runs the code, and tells the host what came of it."""

from __future__ import annotations

import atexit
import fcntl
import os
import resource
import signal
import socket
import sys
import threading
from typing import Any, Dict, List

from . import linux, lockdown
from .cells import Interpreter
from .frames import Channel
from .holder import Holder
from .streams import Streams, null_input

__all__ = ["RESERVED_FILES", "run_runner"]

_PR_SET_DUMPABLE = 4

RESERVED_FILES = 16


def run_runner(message: Dict[str, Any], fds: List[int], config: Dict[str, Any], prepared: lockdown.Prepared) -> None:
    """Be a runner that starts from a fresh state; never returns.

    Args:
        message: The request: the channel's `key`.
        fds: The channel and the pipes for standard output and error.
        config: The worker's configuration.
        prepared: What is to be locked.
    """
    os.setsid()
    os.chdir(config["workspace"])
    null_input()
    streams = _connect(message, fds, config)
    prepared.apply()
    _bound_files(config)
    linux.libc("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)
    sys.path.insert(0, config["workspace"])
    Runner(config, Interpreter(config), *streams).serve()


def _connect(message: Dict[str, Any], fds: List[int], config: Dict[str, Any]) -> "tuple[Channel, Streams]":
    # Above all numbers that the code's own files can have: out of the way of whoever closes or writes to all it finds.
    lowest = config["limits"]["open_files"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(lowest + RESERVED_FILES, hard), hard))
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest) for fd in fds]
    os.dup2(fds[1], 1)
    os.dup2(fds[2], 2)
    for fd in fds:
        os.close(fd)
    channel = Channel(socket.socket(fileno=high[0]), bytes.fromhex(message["key"]))
    streams = Streams(channel, high[1:])
    streams.install()
    return channel, streams


def _bound_files(config: Dict[str, Any]) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(config["limits"]["open_files"], hard), hard))


class Runner:
    """Runs cells until the host closes the channel.

    Args:
        config: The worker's configuration.
        interpreter: The state.
        channel: Where requests come from and results go to.
        streams: Where output goes to.
    """

    def __init__(self, config: Dict[str, Any], interpreter: Interpreter, channel: Channel, streams: Streams) -> None:
        self._config = config
        self._interpreter = interpreter
        self._channel = channel
        self._streams = streams
        self._running = False
        self._pid = os.getpid()

    def serve(self) -> None:
        """Answer requests; never returns."""
        signal.signal(signal.SIGINT, self._interrupt)
        self._channel.send({"event": "ready", "pid": self._pid})
        while True:
            request = self._channel.receive()
            if request is None:
                os._exit(0)
            message, fds = request
            if message["op"] == "cell":
                self._cell(message)
            elif message["op"] == "checkpoint":
                self._checkpoint(fds[0])

    def _interrupt(self, *_: Any) -> None:
        if self._running:
            raise KeyboardInterrupt

    def _cell(self, message: Dict[str, Any]) -> None:
        self._running = True
        try:
            answer = self._interpreter.run(message)
            if message.get("final"):
                self._finish(answer)
        except KeyboardInterrupt:  # It came after the code had ended.
            answer = {"outcome": "error", "exit_code": 130}
        finally:
            self._running = False
        if os.getpid() != self._pid:
            os._exit(answer["exit_code"] & 0xFF)  # A fork that the code made and let run on to here.
        self._streams.flush()
        answer["threads"] = threading.active_count()
        self._channel.send({"event": "done", "id": message["id"], **answer})
        if message.get("final"):
            os._exit(answer["exit_code"] & 0xFF)

    def _finish(self, answer: Dict[str, Any]) -> None:
        """Do what an interpreter does at its end: wait for threads, then call what asked to be called."""
        try:
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        except BaseException as error:
            answer.update(self._interpreter.failure(error))

    def _checkpoint(self, fd: int) -> None:
        self._streams.flush()
        try:
            pid = os.fork()
        except OSError as error:
            with socket.socket(fileno=fd) as sock:
                Channel(sock, self._channel.key).send({"event": "failed", "error": str(error)})
            return
        if pid:
            os.close(fd)
            return
        control = Channel(socket.socket(fileno=fd), self._channel.key)
        self._channel.close()
        for pipe in self._streams.pipes:
            os.close(pipe)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.close(null)
        control.send({"event": "holding", "pid": os.getpid()})
        Holder(control, {"run": self._resume}).serve()
        os._exit(0)

    def _resume(self, message: Dict[str, Any], fds: List[int]) -> None:
        channel, streams = _connect(message, fds, self._config)
        _bound_files(self._config)
        Runner(self._config, self._interpreter, channel, streams).serve()

"""The worker, the warm process behind the wall: imports modules once, and forks a supervisor for every room.

It never runs code of a cell. When the host ends, the control socket closes; then the worker ends, and with it
everything behind the wall.

A fork is cheap if few memory pages are written to after it, since a page is copied when either process first writes to
it. So what every fork would do is done once here, before the first one.
"""

from __future__ import annotations

import base64
import functools
import gc
import importlib.util
import linecache
import marshal
import os
import signal
import site
import socket
import sys
import types
from collections.abc import Callable
from typing import Any

from . import copying, folders, forks, memory
from .frames import Channel, send_packet
from .interpreter import Interpreter
from .isolation import boot, linux
from .priorities import Priorities
from .room import RoomSupervisor
from .runner import Runner

# Modules that every runner needs. Imported here, they are in memory that all runners share.
_ALWAYS = ("ast", "io", "json", "linecache", "threading", "traceback", "types")


def serve(control_fd: int) -> None:
    """Serve until the host closes the control socket."""
    # The host's number may be one of those that runners reserve, or be forbidden by the limit on open files.
    channel = Channel(socket.socket(fileno=os.dup(control_fd)))
    os.close(control_fd)
    first = channel.receive()
    if first is None:
        return
    config = first[0]
    gc.disable()  # Imports make many objects and hardly any garbage.
    try:
        facts = _prepare(config)
        runner = Runner(config)
        gc.freeze()  # A garbage collection in a fork would write to every object that exists now.
        gc.collect()  # Empties the interpreter's lists of free objects, which every fork would do at its end.
        memory.settle()
        gc.enable()
    except Exception as error:
        channel.send({"event": "failed", "error": f"{type(error).__name__}: {error}"})
        return
    channel.send({"event": "ready", **facts})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel collects the processes that end from now on.
    boot.reap()
    priorities = Priorities(config["rooms"] == "namespaces")
    while True:
        request = channel.receive()
        if request is None:
            return
        message, fds = request
        if message.get("op") == "room" and fds:
            _open_room(channel, message, fds, config, runner)
        elif message.get("op") == "uncover" and fds:
            _in_fork(channel, fds, functools.partial(boot.uncover_workspace, config, fds[1:]))
        elif message.get("op") == "files" and fds:
            _keep_files(channel, fds, config)
        elif message.get("op") == "look":
            facts = {name: message[name] for name in ("first", "parent", "entered", "apart")}
            priorities.look(message["pid"], **facts)


def _prepare(config: dict[str, Any]) -> dict[str, Any]:
    boot.boot(config["boot"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python's handler would run even in the first process of a namespace.
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    site.main()  # After the boot, so that code in site-packages runs without the privileges that the boot needs.
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]
    sys.dont_write_bytecode = True
    for name in _ALWAYS:
        importlib.import_module(name)
    missing = {}
    for each in config.get("preload", []):
        name, *made = [each] if isinstance(each, str) else each
        try:
            if made:
                _make_module(name, *made)
            else:
                importlib.import_module(name)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"
    forks.leave_hooks()
    programs = config["boot"].get("programs", [])
    os.environ["PATH"] = os.pathsep.join([*programs, os.environ.get("PATH", os.defpath)])
    for _ in range(20):  # Until the interpreter has specialized the code that every runner executes.
        Interpreter({**config, "workspace": "/dev"}).run({"code": "x = [1, 2]\nsum(x)"})
    linecache.clearcache()
    facts = {"python": ".".join(map(str, sys.version_info[:3])), "missing": missing}
    return {**facts, "no_overlay": boot.why_no_overlay(config)} if config["overlay"] else facts


def _make_module(name: str, source: str, compiled: str) -> None:
    """Make a module from its source; from what the host has compiled, if that is for this version of Python."""
    data, head = base64.b64decode(compiled), importlib.util.MAGIC_NUMBER
    ours = data.startswith(head)
    code = marshal.loads(data[len(head) :]) if ours else compile(source, f"<{name}>", "exec", dont_inherit=True)
    package, _, last = name.rpartition(".")
    module: Any = types.ModuleType(name)
    module.__package__, module.__path__, module.__code__ = package or name, [], code
    sys.modules[name] = module
    exec(code, module.__dict__)
    if package:
        setattr(sys.modules[package], last, module)


def _open_room(
    channel: Channel, message: dict[str, Any], fds: list[int], config: dict[str, Any], runner: Runner
) -> None:
    spaces, end = 1 + message["spaces"], 1 + message["given"]
    # Namespaces of the room of whose session this is a fork; copies of its files, if it has any; what a proxy needs.
    within, copied, listeners = fds[1:spaces], fds[spaces:end], fds[end:]

    def serve(room: Channel) -> None:
        nested = boot.enter_room(config, lambda pid: room.send({"event": "pid", "pid": pid}), within)
        own = config if nested else folders.own_folders(config, message["inside"])
        if config["overlay"]:
            boot.hand_over_overlay(listeners.pop(), config)
        for each in listeners:
            boot.hand_over_listeners(each, config["proxy_ports"])
        for folder, path in zip(copied, _copied(own)):  # noqa: B905 (Python 3.8)
            place = folders.open_folder(path, own["scratch"])
            copying.copy_folder(folder, place)
            os.close(place)
        for each in (*within, *copied):
            os.close(each)
        RoomSupervisor(room, own, nested, runner, is_fork=message["is_fork"]).serve()

    _in_fork(channel, fds, serve)


def _keep_files(channel: Channel, fds: list[int], config: dict[str, Any]) -> None:
    """Copy the folders of a session into memory, for its forks, and send the host the copies."""
    _, receiver, *opened = fds

    def keep(host: Channel) -> None:
        if config["rooms"] == "namespaces":
            boot.hand_over_copies(receiver, opened, config["limits"]["disk_bytes"])
            host.send({"event": "kept"})
            return
        boot.die_with_parent()
        copies = folders.Copies(opened, config["scratch"], config["limits"]["disk_bytes"])
        try:
            with socket.socket(fileno=receiver) as sender:
                send_packet(sender, b".", copies.fds)
            host.send({"event": "kept"})
            host.receive()  # Until the host needs them no longer.
        finally:
            copies.remove()

    _in_fork(channel, fds, keep)


def _copied(config: dict[str, Any]) -> list[str]:
    """The folders of a fork that are copies of those of the first session."""
    return ["/tmp"] if config["overlay"] else config.get("folders", [config["workspace"], "/tmp"])


def _in_fork(channel: Channel, fds: list[int], work: Callable[[Channel], None]) -> None:
    """Do something in a fork of this process, which the host is connected to by the first descriptor."""
    try:
        pid = forks.fork()
    except OSError as error:
        with socket.socket(fileno=fds[0]) as sock:
            Channel(sock).send({"event": "failed", "error": f"fork: {error}", "errno": error.errno})
        return
    if pid:
        for each in fds:
            os.close(each)
        return
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel.close()
        host = Channel(socket.socket(fileno=fds[0]))
        try:
            work(host)
            status = 0
        except Exception as error:
            number = getattr(error, "errno", None)
            host.send({"event": "failed", "error": f"{type(error).__name__}: {error}", "errno": number})
    finally:
        os._exit(status)

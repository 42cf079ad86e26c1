"""The wall made by the system's `bwrap`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox._layout import HOSTNAME, INSIDE, ORDINARY, WORKSPACE, Layout, layout_for
from coderoom.sandbox._walls._base import WallReport, WallSpec
from coderoom.sandbox._walls._local import LocalWorker, Start, identity_to_become, owner_of, python_arguments
from coderoom.sandbox._walls._probing import Facts, ProbedWall
from coderoom.sandbox._walls._remedies import namespaces_remedy

__all__ = ["BubblewrapWall"]

_OLDEST = (0, 4)
_WITH_SIZE = (0, 7)
_SYSTEM_PATH = "/usr/bin:/bin:/usr/local/bin:/usr/sbin:/run/wrappers/bin:/run/current-system/sw/bin"
# What boot needs for /proc, for the workspace's owner and for becoming nobody.
_ROOT_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID")
_INSTALL = "Install bubblewrap 0.4 or later, for instance with `apt install bubblewrap` or `dnf install bubblewrap`."


class BubblewrapWall(ProbedWall):
    """Namespaces of every kind, a file tree of only what is needed, no capabilities."""

    name = "bubblewrap"

    async def _launch(self, spec: WallSpec, program: str, facts: Facts) -> LocalWorker:
        bwrap = await asyncio.to_thread(_find, spec.workspace)
        identity, give_back = identity_to_become(), nothing
        if facts.idmap:
            identity, give_back = await asyncio.to_thread(borrow, spec.workspace)
        with contextlib.ExitStack() as unwind:
            unwind.callback(give_back)
            layout = await asyncio.to_thread(layout_for, spec, ORDINARY if identity is None else identity[0])
            boot = boot_of(spec, layout, identity, facts)
            tidy = unwind.pop_all().close
            return await LocalWorker.launch(lambda fd: _start(bwrap, layout, spec, program, boot, tidy, fd))

    def _report(self, facts: Facts) -> WallReport:
        if facts.error:
            remedy = _INSTALL if _find_in(None) is None else namespaces_remedy(facts.error)
            return WallReport(self.name, available=False, detail=facts.error, remedy=remedy)
        found = _find_in(None)
        version = "" if found is None else f" {'.'.join(map(str, _version(found, _stamp(found))))}"
        detail = f"bwrap{version}: user, process, network, mount and IPC namespaces, only what is needed of the files"
        if os.geteuid() == 0:
            detail += "; root's workers become an unprivileged user"
        remedy = ""
        if facts.nested:
            detail += f"; sessions share one process namespace ({facts.nested})"
            remedy = namespaces_remedy(facts.nested)
        return WallReport(self.name, available=True, detail=detail + ".", remedy=remedy)


def _find(workspace: Path | None) -> str:
    bwrap = _find_in(workspace)
    if bwrap is None:
        raise SandboxUnavailable(f"There is no `bwrap` on this machine. {_INSTALL}")
    version = _version(bwrap, _stamp(bwrap))
    if version < _OLDEST:
        raise SandboxUnavailable(f"{bwrap!r} is version {'.'.join(map(str, version))}, which is too old. {_INSTALL}")
    return bwrap


def _find_in(workspace: Path | None) -> str | None:
    """The system's `bwrap`; never one that code could have put into its workspace."""
    path = os.pathsep.join([_SYSTEM_PATH, *filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))])
    for folder in dict.fromkeys(path.split(os.pathsep)):
        found = shutil.which("bwrap", path=folder)
        if found is None:
            continue
        if workspace is None or not Path(found).resolve().is_relative_to(workspace.resolve()):
            return found
    return None


def _stamp(bwrap: str) -> tuple[int, int]:
    status = Path(bwrap).stat()
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=8)
def _version(bwrap: str, stamp: tuple[int, int]) -> tuple[int, ...]:
    try:
        said = subprocess.run(
            [bwrap, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=True, env={}, text=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailable(f"{bwrap!r} cannot be run: {error}.") from error
    found = re.search(r"(\d+)\.(\d+)\.?(\d+)?", said)
    return tuple(int(part) for part in found.groups() if part) if found else (0,)


def _boot(spec: WallSpec, layout: Layout, identity: tuple[int, int] | None, nested: bool) -> dict[str, Any]:
    boot: dict[str, Any] = {
        "workspace": WORKSPACE,
        "packages": layout.packages,
        "rooms": "namespaces" if nested else "plain",
        "lockdown": {"own_pid_only": not nested, "local_sockets": not spec.network},
    }
    if identity is not None:
        boot |= {
            "identity": identity,
            "proc": True,
            "open": ["/tmp", "/dev/shm", *([WORKSPACE] if spec.workspace is None else [])],
            "owner": None if spec.workspace is None else owner_of(spec.workspace),
            "guarded": layout.guarded,
        }
    return boot


def _start(
    bwrap: str, layout: Layout, spec: WallSpec, program: str, boot: Mapping[str, Any], control_fd: int
) -> Start:
    as_root = "identity" in boot
    files = {path: _memory_file(path, text) for path, text in layout.files.items()}
    info_reader, info_writer = os.pipe()
    size = spec.limits.disk_bytes if _version(bwrap, _stamp(bwrap)) >= _WITH_SIZE else None
    arguments = [*_privileges(spec, as_root), *_tree(layout, files, size, as_root), "--info-fd", str(info_writer)]
    for name, value in spec.env.items():
        arguments += ["--setenv", name, value]
    # Not on the command line, which everybody on this machine can read.
    listed = _memory_file("arguments", "\0".join(arguments))
    return Start(
        argv=[bwrap, "--args", str(listed), "--", *python_arguments(layout.python, INSIDE, program, control_fd)],
        boot=boot,
        fds=[listed, info_writer, *files.values()],
        worker_pid=functools.partial(_worker_pid, info_reader),
        tidy=functools.partial(os.close, info_reader),
    )


def _privileges(spec: WallSpec, as_root: bool) -> list[str]:
    arguments = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", HOSTNAME]
    # Without the third, number 1 inside would be bwrap, whose environment is the host's.
    arguments += ["--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
    if not spec.network:
        arguments.append("--unshare-net")
    if as_root:
        for name in _ROOT_CAPABILITIES:
            arguments += ["--cap-add", name]
    else:
        arguments += ["--unshare-user", "--uid", str(ORDINARY), "--gid", str(ORDINARY)]
    return arguments


def _tree(layout: Layout, files: dict[str, int], size: int | None, as_root: bool) -> list[str]:
    def memory(path: str) -> list[str]:
        return (["--size", str(size)] if size is not None else []) + ["--tmpfs", path]

    arguments = memory("/tmp")
    made: set[str] = set()
    for source, target in layout.read_only:
        # Made by the way they would be their owner's alone, in some versions.
        above = [str(folder) for folder in reversed(Path(target).parents) if str(folder) not in ("/", "/tmp")]
        for folder in above:
            if folder not in made and not any(Path(folder).is_relative_to(bound) for _, bound in layout.read_only):
                arguments += ["--dir", folder]
                made.add(folder)
        arguments += ["--ro-bind", source, target]
    for text, path in layout.symlinks:
        arguments += ["--symlink", text, path]
    for path, fd in files.items():
        arguments += ["--file", str(fd), path]
    # As root bwrap would cover parts of /proc, and no other /proc could be mounted below such a one.
    arguments += ["--dir", "/proc"] if as_root else ["--proc", "/proc"]
    arguments += ["--dev", "/dev", *memory("/dev/shm"), "--remount-ro", "/dev"]
    if layout.workspace is None:
        arguments += memory(WORKSPACE)
    else:
        arguments += ["--bind", layout.workspace, WORKSPACE]
        if not as_root:
            for path, writable in layout.guarded:
                bind = "--bind" if writable else "--ro-bind"
                arguments += [bind, str(Path(layout.workspace, path)), str(Path(WORKSPACE, path))]
    return [*arguments, "--chdir", "/", "--remount-ro", "/"]


def _memory_file(name: str, text: str) -> int:
    fd = os.memfd_create(Path(name).name)
    os.write(fd, os.fsencode(text))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _worker_pid(info_reader: int) -> int | None:
    """What bwrap has told of its child, if it has got that far."""
    os.set_blocking(info_reader, False)
    with contextlib.suppress(BlockingIOError, ValueError, KeyError):
        return int(json.loads(os.read(info_reader, 4096))["child-pid"])
    return None

"""The walls `namespaces`, which needs no program but Python, and `bubblewrap`, made by the system's program `bwrap`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.walls.layout import HOSTNAME, INSIDE, ORDINARY, Layout, layout_for
from coderoom.sandbox.walls.local import (
    OUTSIDE,
    Facts,
    ProbedWall,
    Start,
    identity_to_become,
    owner_of,
    python_arguments,
)
from coderoom.sandbox.walls.workspace import borrowed

_OLDEST = (0, 4)
_WITH_SIZE = (0, 7)
_INFO_MILLISECONDS = 2000
_SYSTEM_PATH = "/usr/bin:/bin:/usr/local/bin:/usr/sbin:/run/wrappers/bin:/run/current-system/sw/bin"
# For the boot: mounting /proc and the workspace, changing the user, and ending the worker.
_ROOT_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH", "CAP_SETUID", "CAP_SETGID", "CAP_KILL")
_INSTALL = "Install bubblewrap 0.4 or later, for instance with `apt install bubblewrap` or `dnf install bubblewrap`."


class MountNamespaceWall(ProbedWall):
    """A wall with namespaces of every kind, a file tree with only what is needed, and no capabilities."""

    overlays = True
    has_tree = True
    by_file_system = True  # Not every file system can show root's files as another user's.

    def remedy(self) -> str:
        """See `ProbedWall.remedy`."""
        return namespaces_remedy()

    def _describe_as(self, by: str, facts: Facts) -> tuple[str, str]:
        detail = f"{by}: process, network, mount and IPC namespaces, and of the files only what is needed"
        if identity_to_become() is not None:
            detail += "; root's workers become an unprivileged user"
        if facts.nested:
            detail += f"; sessions share one process namespace ({facts.nested})"
        return f"{detail}.", namespaces_remedy() if facts.nested else ""


async def _lay_out(spec: SandboxConfig, facts: Facts, tidying: contextlib.ExitStack) -> tuple[Layout, dict[str, Any]]:
    """The file tree and the boot data of a worker."""
    identity = identity_to_become()
    if facts.idmap:
        identity = await borrowed(spec.workspace if spec.workspace_mode == "direct" else None, tidying)
    layout = await asyncio.to_thread(layout_for, spec, ORDINARY if identity is None else identity[0])
    mapped = identity is not None and not facts.idmap and spec.workspace is not None
    boot = {
        "identity": identity,
        "workspace": spec.place,
        "owner": owner_of(Path(str(spec.workspace))) if mapped else None,
        "guarded": layout.guarded,
        "packages": layout.packages,
        "programs": layout.programs,
        # Another /tmp has to keep these visible.
        "below_tmp": [path for path in layout.targets if path.startswith("/tmp/")],
        "rooms": "plain" if facts.nested else "namespaces",
        # Otherwise root's files would have to become the worker's.
        "overlays": not facts.nested and (identity is None or mapped),
        # No socket of the host has a path inside; with the host's network, some have abstract names.
        "lockdown": {"own_pid_only": bool(facts.nested), "local_sockets": not spec.host_network},
        "own_network": not spec.host_network,
    }
    return layout, boot


class NamespacesWall(MountNamespaceWall):
    """The same namespaces and file tree as with bubblewrap, made by the worker itself."""

    name = "namespaces"

    async def prepare(self, spec: SandboxConfig, program: str, facts: Facts, tidying: contextlib.ExitStack) -> Start:
        """See `ProbedWall.prepare`."""
        layout, boot = await _lay_out(spec, facts, tidying)
        root = {
            "read_only": layout.read_only,
            "symlinks": layout.symlinks,
            "files": layout.files,
            "workspace": layout.workspace,
            "writable": layout.writable,
            "place": spec.place,
            "size": spec.limits.disk_bytes,
            "owner": boot["identity"],
        }
        enter = {
            "user": boot["identity"] is None,
            "network": spec.host_network,
            "hostname": HOSTNAME,
            "inside": INSIDE,
            "root": root,
        }
        return Start(
            python_arguments(layout.python, str(OUTSIDE), program),
            # The environment comes later: a variable such as LD_PRELOAD must not act before the wall stands.
            {**boot, "enter": enter, "environment": dict(spec.env)},
        )

    def describe(self, facts: Facts) -> tuple[str, str]:
        """See `ProbedWall.describe`."""
        return self._describe_as("without a program besides Python", facts)


def namespaces_remedy() -> str:
    """What would let an unprivileged user make namespaces here, as far as known."""
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == 1:
        return (
            "AppArmor restricts user namespaces here (Ubuntu 23.10 and later): a profile that allows `userns` to "
            "the program lifts that, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0` for all."
        )
    if _setting("kernel/unprivileged_userns_clone") == 0:
        return "User namespaces are switched off here; `sysctl kernel.unprivileged_userns_clone=1` switches them on."
    if _setting("user/max_user_namespaces") == 0:
        return "User namespaces are switched off here; a `sysctl user.max_user_namespaces` above 0 switches them on."
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "In a container it takes `--security-opt seccomp=unconfined --security-opt systempaths=unconfined`."
    return "The kernel refuses namespaces here; see what security module or container rules apply."


def _setting(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


class BubblewrapWall(MountNamespaceWall):
    """Namespaces of every kind, a file tree with only what is needed, and no capabilities, made by `bwrap`."""

    name = "bubblewrap"

    async def prepare(self, spec: SandboxConfig, program: str, facts: Facts, tidying: contextlib.ExitStack) -> Start:
        """See `ProbedWall.prepare`."""
        # Check the workspace first: a `bwrap` inside it would seem to be missing.
        await asyncio.to_thread(layout_for, spec)
        bwrap, version = await asyncio.to_thread(_find, spec.workspace)
        layout, boot = await _lay_out(spec, facts, tidying)
        as_root = boot["identity"] is not None
        size = spec.limits.disk_bytes if version >= _WITH_SIZE else None
        info, info_writer = os.pipe()
        tidying.callback(os.close, info)
        with contextlib.ExitStack() as unwind:
            fds = [info_writer]
            unwind.callback(_close, fds)
            for path, text in layout.files.items():
                fds.append(_memory_file(path, text))
            arguments = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
            arguments += ["--hostname", HOSTNAME]
            # Without --as-pid-1, process 1 would be bwrap, which has the host's environment.
            arguments += ["--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
            if not spec.host_network:
                arguments.append("--unshare-net")
            if as_root:
                for name in _ROOT_CAPABILITIES:
                    arguments += ["--cap-add", name]
            else:
                arguments += ["--unshare-user", "--uid", str(ORDINARY), "--gid", str(ORDINARY)]
            arguments += _tree(layout, dict(zip(layout.files, fds[1:], strict=True)), size, as_root)
            for name, value in spec.env.items():
                arguments += ["--setenv", name, value]
            # Not on the command line, which every user of this machine can read.
            fds.append(_memory_file("arguments", "\0".join([*arguments, "--info-fd", str(info_writer)])))
            unwind.pop_all()
        # What bwrap does not do for a worker of root: it would cover parts of `/proc`, makes all folders root's, and
        # cannot end a worker that has given up root.
        in_memory = ["/tmp", "/dev/shm", *([spec.place] if spec.workspace is None else [])]
        left = {"proc": True, "supervised": True, "open": in_memory}
        return Start(
            [bwrap, "--args", str(fds[-1]), "--", *python_arguments(layout.python, INSIDE, program)],
            {**boot, **left} if as_root else {**boot, "guarded": []},
            fds,
            functools.partial(_worker_pid, info),
        )

    def remedy(self) -> str:
        """See `ProbedWall.remedy`."""
        try:
            _find(None)
        except SandboxUnavailable:
            return _INSTALL
        return super().remedy()

    def describe(self, facts: Facts) -> tuple[str, str]:
        """See `ProbedWall.describe`."""
        return self._describe_as(f"bwrap {'.'.join(map(str, _find(None)[1]))}", facts)


def _find(workspace: Path | None) -> tuple[str, tuple[int, ...]]:
    """The system's `bwrap` and its version; never one in the workspace, where code could have put it."""
    skipped = ""
    path = [_SYSTEM_PATH, *filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))]
    for folder in dict.fromkeys(os.pathsep.join(path).split(os.pathsep)):
        found = shutil.which("bwrap", path=folder)
        if found is None:
            continue
        if workspace is not None and Path(found).resolve().is_relative_to(workspace.resolve()):
            skipped = f" but {found!r}, which lies in the workspace, where code can change it"
            continue
        status = Path(found).stat()
        version = _version(found, (status.st_mtime_ns, status.st_size))
        if version < _OLDEST:
            raise SandboxUnavailable(f"{found!r} is version {'.'.join(map(str, version))}, which is too old.")
        return found, version
    raise SandboxUnavailable(f"There is no `bwrap` on this machine{skipped}.")


@functools.lru_cache(maxsize=8)
def _version(bwrap: str, stamp: tuple[int, int]) -> tuple[int, ...]:
    try:
        said = subprocess.run([bwrap, "--version"], capture_output=True, timeout=10, check=True, env={}).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailable(f"{bwrap!r} cannot be run: {error}.") from error
    found = re.search(rb"(\d+)\.(\d+)\.?(\d+)?", said)
    return tuple(int(part) for part in found.groups() if part) if found else (0,)


def _tree(layout: Layout, files: dict[str, int], size: int | None, as_root: bool) -> list[str]:
    def memory(path: str) -> list[str]:
        return (["--size", str(size)] if size is not None else []) + ["--tmpfs", path]

    arguments = memory("/tmp")
    made: set[str] = set()
    binds = [("--ro-bind", *bind) for bind in layout.read_only]
    for kind, source, target in [*binds, *(("--symlink", *link) for link in layout.symlinks)]:
        # Some versions make missing parents readable for their owner only.
        above = [str(folder) for folder in reversed(Path(target).parents) if str(folder) not in ("/", "/tmp")]
        for folder in above:
            if folder not in made and not any(f"{folder}/".startswith(f"{bound}/") for _, bound in layout.read_only):
                arguments += ["--dir", folder]
                made.add(folder)
        arguments += [kind, source, target]
    for path, fd in files.items():
        arguments += ["--file", str(fd), path]
    # As root, bwrap would cover parts of /proc, and then no other /proc can be mounted.
    arguments += ["--dir", "/proc"] if as_root else ["--proc", "/proc"]
    arguments += ["--dev", "/dev", *memory("/dev/shm"), "--remount-ro", "/dev"]
    if str(Path(layout.place).parent) not in ("/", *made):
        arguments += ["--dir", str(Path(layout.place).parent)]
    if layout.workspace is None:
        arguments += memory(layout.place)
    else:
        arguments += ["--bind" if layout.writable else "--ro-bind", layout.workspace, layout.place]
        if not as_root:
            for path, writable in layout.guarded:
                bind = "--bind" if writable else "--ro-bind"
                arguments += [bind, str(Path(layout.workspace, path)), str(Path(layout.place, path))]
    return [*arguments, "--chdir", "/", "--remount-ro", "/"]


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _memory_file(name: str, text: str) -> int:
    fd = os.memfd_create(Path(name).name)
    os.write(fd, os.fsencode(text))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _worker_pid(info: int) -> int | None:
    """The worker's pid, as bwrap reports it. If bwrap ended before that, its child would wait for ever."""
    info_text = b""
    poll = select.poll()
    poll.register(info)
    while poll.poll(_INFO_MILLISECONDS):
        part = os.read(info, 4096)
        info_text += part
        if not part:
            break
    found = re.search(rb'"child-pid": *(\d+)', info_text)
    return int(found[1]) if found else None

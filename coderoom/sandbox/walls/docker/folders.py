"""The folders that a container shares with the host, and the user of the code in it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.walls.local import copy_for_all
from coderoom.sandbox.walls.workspace import chown_workspace, mounted_for, unmount

__all__ = ["Meeting", "Tenant", "tenant_for", "visible_code"]

_FEW_USERS = (10_000, 60_000)  # Known to every engine that remaps users.
_NOBODY = (0x7000_0000, 0x7FFF_FFFF)  # Used by no machine.


@dataclass(frozen=True)
class Tenant:
    """The user of the code, and the folder of its workspace.

    Attributes:
        uid: Its user, never 0.
        gid: Its group.
        workspace: The folder to mount as the workspace; `None`: an empty one in memory.
        host_users: Whether the engine must not remap the users.
        give_back: Called at the end.
    """

    uid: int
    gid: int
    workspace: Path | None = None
    host_users: bool = False
    give_back: Callable[[], object] = lambda: None


class Meeting:
    """A private folder with the socket at which the host waits for its worker.

    No other user of this machine can enter the folder; the container sees only the part with the socket.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="coderoom-"))
        self.folder = self._folder / "control"
        self.mount = self._folder / "workspace"
        self.folder.mkdir()
        self.folder.chmod(0o711)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = self.folder / "socket"
        try:
            self.listener.bind(str(path))
            path.chmod(0o666)
            self.listener.listen(1)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the folder; the container keeps what it has mounted."""
        self.listener.close()
        unmount(self.mount)
        # Never recursively: the workspace may still be mounted here.
        with contextlib.suppress(OSError):
            (self.folder / "socket").unlink(missing_ok=True)
        for folder in (self.folder, self.mount, self._folder):
            with contextlib.suppress(OSError):
                folder.rmdir()


def tenant_for(workspace: Path | None, mount: Path | None, remapped: bool, rootless: bool) -> Tenant:
    """Choose a user for the code, so that what it writes belongs to the workspace's owner.

    Args:
        workspace: The folder.
        mount: Where it can be mounted once more; `None`: the engine would not see that.
        remapped: Whether the engine remaps users.
        rootless: Whether the engine always does so.

    Raises:
        SandboxUnavailable: There is no such user.
    """
    nobody = random.SystemRandom().randint(*(_FEW_USERS if remapped else _NOBODY))
    if workspace is None:
        return Tenant(nobody, nobody)
    owner = workspace.stat()
    open_to_all = owner.st_mode & stat.S_IRWXO == stat.S_IRWXO
    if remapped and (open_to_all or rootless):
        if not open_to_all:
            raise SandboxUnavailable(
                f"Code in a container of a rootless Docker engine cannot write into the workspace {str(workspace)!r}: "
                "its owner is the container's root, which code never is. Make it writable for all (chmod a+rwx), or "
                "use the wall 'bubblewrap', which needs no more rights than such an engine."
            )
        return Tenant(nobody, nobody, workspace)
    left_behind = owner.st_uid in range(_NOBODY[0], _NOBODY[1] + 1)
    if owner.st_uid and not (left_behind and os.geteuid() == 0):
        return Tenant(owner.st_uid, owner.st_gid or owner.st_uid, workspace, host_users=remapped)
    if os.geteuid():
        if open_to_all:
            return Tenant(nobody, nobody, workspace, host_users=remapped)
        raise _not_for_code(workspace)
    return _beside_root(workspace, mount, nobody, remapped)


def _beside_root(workspace: Path, mount: Path | None, nobody: int, remapped: bool) -> Tenant:
    if mount is not None and workspace.stat().st_uid == 0:
        try:
            mount.mkdir()
            mounted_for(workspace, mount, nobody, nobody)
            return Tenant(nobody, nobody, mount, remapped)
        except OSError:
            pass  # An old kernel, or a file system that cannot do it.
    identity, give_back = chown_workspace(workspace)
    if identity is None:
        raise _not_for_code(workspace)
    return Tenant(*identity, workspace, remapped, give_back)


def _not_for_code(workspace: Path) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"The workspace {str(workspace)!r} belongs to root, and code is never root: use a folder of your own."
    )


def visible_code(source: Path) -> tuple[Path, Path | None]:
    """A folder of the worker's code that every user can read, and the temporary folder of its copy if it is one."""
    folders = [path for path in (source, *source.rglob("*")) if path.is_dir()]
    if all(path.stat().st_mode & 0o005 == 0o005 for path in folders) and all(
        path.stat().st_mode & 0o004 for path in source.rglob("*.py")
    ):
        return source, None
    copy = Path(tempfile.mkdtemp(prefix="coderoom-"))
    return copy_for_all(source, copy), copy

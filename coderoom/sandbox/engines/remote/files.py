"""The files of a workspace, which are here and at the server.

What has changed goes there before a cell, and comes here after it. Only plain files
are copied, without their permissions. The server may send anything, so that nothing is written outside of the
workspace, through a link, or beyond `limits.disk_bytes`.
"""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import tempfile
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from coderoom._util.archives import members_of
from coderoom._util.files import name_inside, open_inside, remove_inside, stats_inside, write_inside
from coderoom._util.tasks import run_uncancellable
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.config import Limits
from coderoom.sandbox.engines.remote.client import Client, GoneError

_IN_MEMORY: Final = 1024 * 1024
_MOST_FILES: Final = 20_000
_HEAD: Final = 2048  # Of a file in an archive: its name and the end of its last block.

Version = tuple[Any, ...]
"""What changes with a file."""


class Lease(Protocol):
    """A sandbox at a server."""

    client: Client
    path: str


class RemoteFiles:
    """Keeps two folders alike.

    Args:
        lease: The sandbox at the server.
        folder: The folder here.
        limits: Limits of the sandbox.
    """

    def __init__(self, lease: Lease, folder: Path, limits: Limits) -> None:
        self._lease = lease
        self._folder = folder
        self._limits = limits
        self._here: dict[str, Version] = {}  # As both were when they were alike.
        self._there: dict[str, Version] = {}
        self._lock = asyncio.Lock()

    async def push(self) -> None:
        """Bring to the server what has changed here."""
        async with self._lock:
            await run_uncancellable(self._push())

    async def pull(self) -> None:
        """Bring here what has changed at the server."""
        async with self._lock:
            await run_uncancellable(self._pull())

    @asynccontextmanager
    async def at_rest(self) -> AsyncGenerator[None]:
        """Bring here what has changed, and then nothing until the end of the context."""
        async with self._lock:
            await run_uncancellable(self._pull())
            yield

    async def _push(self) -> None:
        now = await asyncio.to_thread(self._versions_here)
        for name in [name for name in self._here if name not in now]:
            with suppress(GoneError, RequestError):  # It is gone there, too.
                await self._lease.client.ask("DELETE", f"{self._lease.path}/files/{quote(name)}")
            self._there.pop(name, None)
            del self._here[name]
        changed = [name for name, version in now.items() if self._here.get(name) != version]
        if not changed:
            return
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as archive:
            await asyncio.to_thread(self._pack, changed, archive)
            await self._lease.client.upload(f"{self._lease.path}/archive", archive)
        there = await self._versions_there()
        for name in changed:
            self._here[name] = now[name]
            if name in there:
                self._there[name] = there[name]

    async def _pull(self) -> None:
        there = await self._versions_there()
        gone = [name for name in self._there if name not in there]
        await asyncio.to_thread(self._remove, gone)
        changed = [name for name, version in there.items() if self._there.get(name) != version]
        if changed:
            most = sum(there[name][0] + _HEAD for name in changed) + 20 * 512
            if most > self._limits.disk_bytes + _MOST_FILES * _HEAD:
                raise SandboxUnavailable(f"The server has more than {self._limits.disk_bytes:,} bytes of files.")
            with tempfile.SpooledTemporaryFile(_IN_MEMORY) as archive:
                await self._lease.client.download(
                    f"{self._lease.path}/archive",
                    {"names": changed},
                    archive,
                    most,
                )
                archive.seek(0)
                await asyncio.to_thread(self._unpack, set(changed), archive)
        self._there = there

    async def _versions_there(self) -> dict[str, Version]:
        facts = await self._lease.client.ask("GET", f"{self._lease.path}/files")
        found: dict[str, Version] = {}
        listed = facts.get("files")
        for each in listed if isinstance(listed, list) else ():
            try:
                name, size = str(each["name"]), int(each["size"])
                if name_inside(name) == name and size >= 0 and len(found) < _MOST_FILES:
                    found[name] = size, each.get("version")
            except (RequestError, KeyError, TypeError, ValueError, AttributeError):
                continue
        return found

    def _versions_here(self) -> dict[str, Version]:
        return {name: _version_of(facts) for name, facts in stats_inside(self._folder)}

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                self._here.pop(name, None)
                remove_inside(self._folder, name)

    def _pack(self, names: Iterable[str], file: Any) -> None:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name in names:
                try:
                    source = open_inside(self._folder, name)
                except (OSError, RequestError):
                    continue  # It was removed or replaced meanwhile.
                with source:
                    facts = tarfile.TarInfo(name)
                    facts.size = source.seek(0, io.SEEK_END)
                    source.seek(0)
                    archive.addfile(facts, source)
        file.seek(0)

    def _unpack(self, wanted: set[str], file: Any) -> None:
        try:
            for member, content in members_of(file):
                if content is None or member.name not in wanted:
                    continue
                path = write_inside(self._folder, member.name, content)
                self._here[member.name] = _version_of(path.lstat())
        except tarfile.TarError as error:
            raise SandboxUnavailable(f"The server has sent no archive of files: {error}.") from error
        except OSError as error:
            raise RequestError(f"Files of the server cannot be written to {str(self._folder)!r}: {error}.") from error


def _version_of(facts: os.stat_result) -> Version:
    return facts.st_size, facts.st_ino, facts.st_ctime_ns

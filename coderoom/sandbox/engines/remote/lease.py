"""A sandbox at a server, for as long as it is used here. Made by the engine `remote`, and used by its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from coderoom._util.tasks import call_in_loop, cancel_and_wait
from coderoom.errors import CodeRoomError
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.engines.remote.client import Address, Client, GoneError, id_of, tell
from coderoom.sandbox.engines.remote.files import RemoteFiles

_STAY_SECONDS: Final = 60.0
_LEAVING_SECONDS: Final = 5.0


class Lease:
    """A sandbox at the server, which is used now and then, so that it is not idle.

    Its task has the connections. It closes them and the sandbox when it is cancelled, as by the end of the event loop.
    """

    def __init__(self, address: Address, client: Client, facts: Mapping[str, Any], config: SandboxConfig) -> None:
        self.client = client
        self.path = f"/v1/sandboxes/{id_of(facts)}"
        told = facts.get("facts")
        self.facts = {**(told if isinstance(told, dict) else {}), "server": address.shown, "wall": facts.get("wall")}
        self.lock = str(facts.get("lock", ""))
        self.files = None if config.workspace is None else RemoteFiles(self, config.workspace, config.limits)
        self.lost = False
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._stay())

    async def close(self) -> None:
        """Close the sandbox."""
        await cancel_and_wait(self._task)

    def leave(self) -> None:
        """As `close`, from anywhere."""
        if self._task.done():
            return
        if self._loop.is_running():
            call_in_loop(self._loop, self._task.cancel)
        else:
            tell(self._address, "DELETE", self.path)

    async def _stay(self) -> None:
        try:
            while True:
                await asyncio.sleep(_STAY_SECONDS)
                try:
                    await self.client.ask("GET", self.path, patience=0)
                except GoneError:
                    self.lost = True
                except CodeRoomError:  # The next cell says so.
                    pass
        finally:
            try:
                async with asyncio.timeout(_LEAVING_SECONDS):
                    if not self.lost:
                        await self.client.ask("DELETE", self.path, patience=0)
            except (CodeRoomError, TimeoutError):  # The server closes by itself what nobody uses.
                pass
            finally:
                await self.client.close()

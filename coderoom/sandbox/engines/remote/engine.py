"""The engine `remote`: cells run in a sandbox of a server, which `coderoom sandbox serve` has started.

The sandbox there is made with the options of the one here, except for what only the server can choose.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

from pydantic import SecretStr

from coderoom.errors import RequestError
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.engines.remote.client import Address, Client
from coderoom.sandbox.engines.remote.lease import Lease
from coderoom.sandbox.engines.remote.session import RemoteSession
from coderoom.sandbox.engines.remote.wire import VARIABLE, options_of
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.languages import LANGUAGES

URL_VARIABLE: Final = "CODEROOM_URL"
TOKEN_VARIABLE: Final = "CODEROOM_SERVER_TOKEN"
CALLERS_VARIABLE: Final = "CODEROOM_TOKEN"
"""Where a server reads its tokens; on the same machine that is enough for its clients."""
_START_SECONDS: Final = 900.0  # Packages may have to be installed.
_IDLE_SECONDS: Final = 180.0


class RemoteEngine:
    """A sandbox of a server.

    `options` has the `url` of the server and the `token`; otherwise they are in the environment variables CODEROOM_URL
    and CODEROOM_SERVER_TOKEN, or CODEROOM_TOKEN if the latter is not set.
    """

    name: ClassVar[str] = "remote"
    languages: ClassVar[Sequence[str]] = LANGUAGES
    lacks: ClassVar[Collection[str]] = ("wall", "python", "readable", "workspace_mode", "environment")
    wall: ClassVar[str] = "remote"

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self._address = _address_of(config.options)
        self._lease: Lease | None = None
        self._starting = asyncio.Lock()
        self._dropped: weakref.finalize[..., Any]

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the server has said about the sandbox, such as its `wall`."""
        return {} if self._lease is None else self._lease.facts

    @property
    def lock(self) -> str:
        """The packages of the sandbox as a requirements file, as it was when it started."""
        return "" if self._lease is None else self._lease.lock

    @property
    def lost(self) -> bool:
        """Whether there is no sandbox, as far as is known."""
        return self._lease is None or self._lease.lost

    @property
    def lease(self) -> Lease:
        """The sandbox at the server."""
        assert self._lease is not None
        return self._lease

    async def start(self) -> None:
        """Make a sandbox at the server."""
        await self.close()
        config = self.config
        body = {
            "options": options_of(config),
            "files": config.workspace is not None,
            "idle_seconds": _IDLE_SECONDS,
        }
        client = Client(self._address)
        try:
            facts = await client.ask("POST", "/v1/sandboxes", body, seconds=_START_SECONDS)
            lease = self._lease = Lease(self._address, client, facts, config)
        except BaseException:
            await client.close()
            raise
        # For a sandbox that is never closed.
        self._dropped = weakref.finalize(self, lease.leave)

    async def start_again(self) -> None:
        """Start, unless another one has done so since the sandbox was lost."""
        async with self._starting:
            if self.lost:
                await self.start()

    async def open(self, functions: Mapping[str, HostFunction]) -> RemoteSession:
        """Open a session; the server learns of it with its first cell."""
        return RemoteSession(self, functions)

    async def close(self) -> None:
        """Close the sandbox at the server, with its sessions."""
        lease, self._lease = self._lease, None
        if lease is not None:
            self._dropped.detach()
            await lease.close()

    def kill(self) -> None:
        """As `close`, without an event loop."""
        lease, self._lease = self._lease, None
        self._starting = asyncio.Lock()  # Another event loop may use the engine next.
        if lease is not None:
            self._dropped.detach()
            lease.leave()


def _address_of(options: Mapping[str, Any]) -> Address:
    unknown = sorted(set(options) - {"url", "token"})
    if unknown:
        raise RequestError(f"options: the engine 'remote' has url and token, and not {unknown[0]!r}.")
    url = options.get("url") or os.environ.get(URL_VARIABLE, "")
    if not url or not isinstance(url, str):
        raise RequestError(
            f"The engine 'remote' needs the URL of a server: options={{'url': ...}}, or {URL_VARIABLE}. "
            "`coderoom sandbox serve` starts one."
        )
    return Address(url, _token_of(options.get("token", "")))


def _token_of(given: object) -> str:
    token = given.get_secret_value() if isinstance(given, SecretStr) else str(given)
    found = VARIABLE.fullmatch(token)  # Of a dumped executor that AutoGen has loaded.
    if token and not found:
        return token
    if found and found[1] != TOKEN_VARIABLE:
        return os.environ.get(found[1], "")
    return os.environ.get(TOKEN_VARIABLE, os.environ.get(CALLERS_VARIABLE, ""))

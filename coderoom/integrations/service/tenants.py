"""Who uses the server: tokens, what each tenant may use, and a fair queue for all of them."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coderoom._util.text import misfits
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.config import MIB
from coderoom.sandbox.proxy.rules import AllowList, address_of, parse_rule

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}", re.ASCII)
_MINUTE: Final = 60.0
_QUEUE_SECONDS: Final = 60.0
_SHORTEST_TOKEN: Final = 8
_GIB: Final = 1024 * MIB


class TenantLimits(BaseModel):
    """What a tenant may use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: int = Field(default=60_000, ge=1, description="Requests in any minute.")
    concurrency: int = Field(default=64, ge=1, description="Runs and cells at a time; others wait.")
    waiting: int = Field(default=512, ge=0, description="Runs and cells that wait; more get the status 429.")
    sandboxes: int = Field(default=64, ge=1, description="Sandboxes at a time.")
    sessions: int = Field(default=1_024, ge=1, description="Sessions at a time.")
    memory_bytes: int = Field(
        default=64 * _GIB,
        ge=64 * MIB,
        description="Memory: of what runs, the limit counts; of an idle session, the most that it has had.",
    )
    disk_bytes: int = Field(
        default=64 * _GIB, ge=MIB, description="Files: of each sandbox with files, the limit `disk_bytes` counts."
    )
    seconds: float = Field(default=300, gt=0, description="The longest time limit of a run or cell.")
    idle_seconds: float = Field(default=600, gt=0, description="A sandbox that nobody uses for so long is closed.")
    network: bool | tuple[str, ...] = Field(
        default=False, description="The network that a sandbox may ask for: none, all, or hosts of this list."
    )
    packages: bool = Field(default=True, description="Whether a sandbox may ask for packages, as wheels.")
    metrics: bool = Field(default=False, description="Whether `/metrics` may be read, which names all tenants.")


@dataclass(eq=False)
class Tenant:
    """One who uses the server, and what is in use.

    Attributes:
        name: The name, for logs and metrics.
        limits: What may be used.
    """

    name: str
    limits: TenantLimits
    running: int = 0
    running_bytes: int = 0
    waiting: deque[tuple[asyncio.Future[None], int]] = field(default_factory=deque)
    asked: deque[float] = field(default_factory=deque)
    used: dict[str, int] = field(default_factory=dict)
    """What is taken of `sandboxes`, `sessions`, `memory_bytes` (by idle sessions) and `disk_bytes`."""

    def take(self, **amounts: int) -> None:
        """Take of what is limited, all or nothing.

        Raises:
            TooMuchError: There is not so much left.
        """
        for name, amount in amounts.items():
            most = getattr(self.limits, name)
            if amount > 0 and self.used.get(name, 0) + amount > most:
                raise TooMuchError(f"The tenant {self.name!r} may have {name}={most:,}; close what is not needed.")
        for name, amount in amounts.items():
            self.used[name] = self.used.get(name, 0) + amount

    def give(self, **amounts: int) -> None:
        """Give back what was taken."""
        for name, amount in amounts.items():
            self.used[name] = self.used.get(name, 0) - amount

    def count_request(self) -> None:
        """Count a request.

        Raises:
            TooMuchError: There were too many in the last minute.
        """
        now, asked = time.monotonic(), self.asked
        while asked and asked[0] <= now - _MINUTE:
            asked.popleft()
        if len(asked) >= self.limits.requests_per_minute:
            why = f"The tenant {self.name!r} may send {self.limits.requests_per_minute:,} requests in a minute."
            raise TooMuchError(why, asked[0] + _MINUTE - now)
        asked.append(now)

    def check_network(self, wanted: bool | Sequence[str]) -> None:
        """Check a network that a sandbox asks for.

        Raises:
            RequestError: It is more than the tenant may have.
        """
        allowed = self.limits.network
        if allowed is True or wanted is False:
            return
        if allowed is False or wanted is True or "observe" in wanted:
            raise RequestError("network: sandboxes of this server have no such network; its operator can allow it.")
        rules = set(map(parse_rule, allowed))
        for each in map(parse_rule, wanted):
            # An address in a sandbox's list is reached wherever it is, so it has to be named here, too.
            named = "*" not in each.host and address_of(each.host) is None and each.host != "localhost"
            of_port = AllowList(rule for rule in rules if rule.port in (None, each.port))
            if each not in rules and not (named and of_port.allows(each.host, each.port)):
                raise RequestError(f"network: this server allows only: {', '.join(allowed) or 'nothing'}.")


class TooMuchError(Exception):
    """A limit of a tenant, or of the server, is met; `after` has the seconds until another try makes sense."""

    def __init__(self, message: str, after: float = 1.0) -> None:
        super().__init__(message)
        self.after = after


class Tenants:
    """All tenants by their tokens, and the queue of what they want to run.

    At most `concurrency` runs and cells are at work. Those that wait get their turn by tenants in rotation, so that one
    with many requests does not delay another with few.
    """

    def __init__(self, tokens: Mapping[str, Tenant], concurrency: int) -> None:
        self._by_token = {token.encode(): tenant for token, tenant in tokens.items()}
        self._free = self._most = concurrency
        self.refuses = False
        self._rotation: deque[Tenant] = deque()

    def __iter__(self) -> Iterator[Tenant]:
        return iter(dict.fromkeys(self._by_token.values()))

    def find(self, tokens: Iterable[bytes]) -> Tenant | None:
        """The tenant who has one of the tokens."""
        found = None
        for token in tokens:
            for known, tenant in self._by_token.items():
                if hmac.compare_digest(known, token):
                    found = tenant
        return found

    def named(self, name: str) -> Tenant | None:
        """The tenant with a name."""
        return next((each for each in self if each.name == name), None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return self._free == self._most and not self.waiting

    @property
    def waiting(self) -> int:
        """How many runs and cells wait."""
        return sum(len(each.waiting) for each in self._rotation)

    @asynccontextmanager
    async def turn(self, tenant: Tenant, memory_bytes: int) -> AsyncGenerator[None]:
        """Wait for the turn to run something that may have so much memory.

        Raises:
            TooMuchError: Too many wait, or it took too long.
            SandboxUnavailable: The server ends.
        """
        if self.refuses:
            raise SandboxUnavailable("The server ends; another takes its place, or will.")
        if not (self._fits(tenant, memory_bytes) and not tenant.waiting):
            await self._wait(tenant, memory_bytes)
        else:
            self._begin(tenant, memory_bytes)
        try:
            yield
        finally:
            self._free += 1
            tenant.running -= 1
            tenant.running_bytes -= memory_bytes
            self._next()

    def _fits(self, tenant: Tenant, memory_bytes: int) -> bool:
        limits = tenant.limits
        memory = tenant.used.get("memory_bytes", 0) + tenant.running_bytes + memory_bytes
        return self._free > 0 and tenant.running < limits.concurrency and memory <= limits.memory_bytes

    def _begin(self, tenant: Tenant, memory_bytes: int) -> None:
        self._free -= 1
        tenant.running += 1
        tenant.running_bytes += memory_bytes

    async def _wait(self, tenant: Tenant, memory_bytes: int) -> None:
        if tenant.used.get("memory_bytes", 0) + memory_bytes > tenant.limits.memory_bytes and not tenant.running:
            raise TooMuchError(
                f"The tenant {tenant.name!r} may use {tenant.limits.memory_bytes:,} bytes of memory, and a run may "
                f"have {memory_bytes:,}: close sessions, or ask for less by limits.memory_bytes."
            )
        if len(tenant.waiting) >= tenant.limits.waiting:
            raise TooMuchError(f"{len(tenant.waiting):,} runs of the tenant {tenant.name!r} wait already.")
        entry = asyncio.get_running_loop().create_future(), memory_bytes
        tenant.waiting.append(entry)
        if tenant not in self._rotation:
            self._rotation.append(tenant)
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                await entry[0]
        except BaseException as error:
            if entry in tenant.waiting:
                tenant.waiting.remove(entry)
            elif entry[0].done() and not entry[0].cancelled():  # Its turn came just now.
                self._free += 1
                tenant.running -= 1
                tenant.running_bytes -= memory_bytes
                self._next()
            if isinstance(error, TimeoutError):
                raise TooMuchError(f"The run has waited for {_QUEUE_SECONDS:g} s; the server is busy.", 5.0) from None
            raise

    def _next(self) -> None:
        for _ in range(len(self._rotation)):
            tenant = self._rotation.popleft()
            while tenant.waiting and tenant.waiting[0][0].done():
                tenant.waiting.popleft()
            if not tenant.waiting:
                continue
            self._rotation.append(tenant)
            waiting, memory_bytes = tenant.waiting[0]
            if self._fits(tenant, memory_bytes):
                tenant.waiting.popleft()
                self._begin(tenant, memory_bytes)
                waiting.set_result(None)


class _Entry(TenantLimits):
    token: str = Field(min_length=1)


def read_tenants(file: Path) -> dict[str, Tenant]:
    """The tenants of a file (YAML or JSON): limits by names, and a `token` for each, such as `${TEAM_A_TOKEN}`.

    Raises:
        RequestError: It cannot be read, or has something else.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe", pure=True).load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise RequestError(f"{file}: the tenants cannot be read: {error}") from None
    if not isinstance(data, dict) or not data:
        raise RequestError(f"{file}: a mapping of names to limits was expected, each with a token.")
    found: dict[str, Tenant] = {}
    for name, given in data.items():
        try:
            entry = _Entry.model_validate(given)
        except ValidationError as error:
            raise RequestError(f"{file}: {name}: {misfits(error)}.") from None
        token = _VARIABLE.sub(lambda found: os.environ.get(found[1], ""), entry.token)
        if len(token) < _SHORTEST_TOKEN:
            raise RequestError(f"{file}: {name}: its token is empty or shorter than {_SHORTEST_TOKEN} characters.")
        if token in found:
            raise RequestError(f"{file}: {name}: {found[token].name!r} has the same token.")
        limits = TenantLimits.model_validate(entry.model_dump(exclude={"token"}))
        found[token] = Tenant(str(name), limits)
    return found


def new_token() -> str:
    """A new token."""
    return secrets.token_urlsafe(24)

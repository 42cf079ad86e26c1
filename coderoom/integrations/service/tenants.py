"""Who uses the server: tokens, what each tenant may use, and a fair queue for all of them."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coderoom._util.tasks import resolve
from coderoom._util.text import misfits
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.integrations.service.tracing import tell_run
from coderoom.integrations.service.usage import Usage, now_ns
from coderoom.integrations.tool import missing
from coderoom.sandbox.config import MIB
from coderoom.sandbox.proxy.rules import AllowList, address_of, parse_rule

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}", re.ASCII)
_QUEUE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.01
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
        description="Memory: of what runs, and of a session with programs, the limit counts; of an idle session and "
        "of each checkpoint, the most that it has had.",
    )
    disk_bytes: int = Field(
        default=64 * _GIB, ge=MIB, description="Files: of each sandbox with files, the limit `disk_bytes` counts."
    )
    seconds: float = Field(default=600, gt=0, description="The longest time limit of a run or cell.")
    idle_seconds: float = Field(default=600, gt=0, description="A sandbox that nobody uses for so long is closed.")
    decision_seconds: float = Field(
        default=86_400,
        ge=0,
        description="How long after its beginning a cell may stand still while persons decide about its calls; then "
        "its time limits go on.",
    )
    network: bool | tuple[str, ...] = Field(
        default=False, description="The network that a sandbox may ask for: none, all, or hosts of this list."
    )
    packages: bool = Field(default=True, description="Whether a sandbox may ask for packages, as wheels.")
    metrics: bool = Field(default=False, description="Whether `/metrics` may be read, which names all tenants.")


@dataclass(eq=False)
class _Waiting:
    """A run that waits for its turn."""

    turn: asyncio.Future[None]
    memory_bytes: int
    since: int = field(default_factory=now_ns)


@dataclass(eq=False)
class Tenant:
    """One who uses the server, and what is in use.

    Attributes:
        name: The name, for logs and metrics.
        limits: What may be used.
        usage: What is used.
        waiting: The runs of this process that wait.
    """

    name: str
    limits: TenantLimits
    usage: Usage = field(default_factory=Usage)
    waiting: deque[_Waiting] = field(default_factory=deque)

    def take(self, **amounts: int) -> None:
        """Take of what is limited, all or nothing.

        Raises:
            TooMuchError: There is not so much left.
        """
        for name, amount in amounts.items():  # Before looking: another process may take of the same now.
            self.usage.add(name, amount)
        for name, amount in amounts.items():
            most = getattr(self.limits, name)
            if amount > 0 and self.usage.total(name) > most:
                self.give(**amounts)
                raise TooMuchError(f"The tenant {self.name!r} may have {name}={most:,}; close what is not needed.")

    def give(self, **amounts: int) -> None:
        """Give back what was taken."""
        for name, amount in amounts.items():
            self.usage.add(name, -amount)

    def count_request(self) -> None:
        """Count a request.

        Raises:
            TooMuchError: There were too many in the last minute.
        """
        after = self.usage.count_in_minute(self.limits.requests_per_minute)
        if after:
            why = f"The tenant {self.name!r} may send {self.limits.requests_per_minute:,} requests in a minute."
            raise TooMuchError(why, after)

    def check_waiting(self) -> None:
        """Check that one more may wait.

        Raises:
            TooMuchError: Too many wait already.
        """
        waiting = self.usage.total("waiting")
        if waiting >= self.limits.waiting:
            raise TooMuchError(f"{waiting:,} runs of the tenant {self.name!r} wait already.")

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


class Slot:
    """What a run has while it is at work.

    Attributes:
        outcome: How the run ended, which is counted.
    """

    def __init__(self, leave: Callable[[], None], come_back: Callable[[bool], Awaitable[None]]) -> None:
        self.outcome = ""
        self._leave, self._come_back = leave, come_back
        self._changing = asyncio.Lock()
        self._pauses = 0

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None]:
        """Give the place to others while the run stands still; if it goes on then, wait for one."""
        ends = True
        async with self._changing:
            if not self._pauses:
                self._leave()
            self._pauses += 1
        try:
            yield
            ends = False
        finally:
            async with self._changing:
                self._pauses -= 1
                if not self._pauses:
                    await self._come_back(ends)


class Tenants:
    """All tenants by their tokens, and the queue of what they want to run.

    At most `concurrency` runs and cells of this process are at work. Those that wait get their turn by tenants in
    rotation, so that one with many requests does not delay another with few; and no tenant takes all places, so that
    another need not wait for the end of what takes long. The limits of a tenant hold for all processes together.
    """

    def __init__(self, tokens: Mapping[str, Tenant], concurrency: int) -> None:
        self._by_token = {token.encode(): tenant for token, tenant in tokens.items()}
        self._free = self._most = concurrency
        self.are_several = len(set(tokens.values())) > 1
        self._rotation: deque[Tenant] = deque()
        self._looking: asyncio.TimerHandle | None = None
        self._aside = 0
        self._returning: deque[tuple[Tenant, _Waiting]] = deque()
        self.refuses = False

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
        """Whether nothing runs or waits in this process."""
        return self._free == self._most and not self._aside and not any(each.waiting for each in self._rotation)

    @asynccontextmanager
    async def slot(self, tenant: Tenant, memory_bytes: int) -> AsyncGenerator[Slot]:
        """Wait for the place to run something that may have so much memory.

        Raises:
            TooMuchError: Too many wait, or it took too long.
            SandboxUnavailable: The server ends.
        """
        if self.refuses:
            raise SandboxUnavailable("The server ends; another takes its place, or will.")
        began = time.monotonic()
        slot = Slot(partial(self._leave, tenant), partial(self._come_back, tenant))
        if tenant.waiting or not self._begin(tenant, memory_bytes, now_ns()):
            await self._wait(tenant, memory_bytes)
        waited = time.monotonic() - began
        try:
            yield slot
        except BaseException as error:
            slot.outcome = slot.outcome or ("failed" if isinstance(error, Exception) else "cancelled")
            raise
        finally:
            self._end(tenant, memory_bytes)
            seconds = time.monotonic() - began
            tenant.usage.count_run(slot.outcome or "ok", seconds)
            tell_run(tenant.name, slot.outcome or "ok", waited, seconds)

    def _begin(self, tenant: Tenant, memory_bytes: int, since: int) -> bool:
        """Begin a run, if that is possible now."""
        usage, limits = tenant.usage, tenant.limits
        if self._free <= 0 or (self.are_several and usage.own("running") >= self._free):
            usage.wait_since(0)
            return False
        usage.add("running", 1)  # Before looking: another process may begin one, too.
        usage.add("running_bytes", memory_bytes)
        memory = usage.total("memory_bytes") + usage.total("running_bytes")
        if (
            usage.total("running") <= limits.concurrency
            and memory <= limits.memory_bytes
            and not usage.others_wait_longer(since)
        ):
            usage.wait_since(0)
            self._free -= 1
            return True
        usage.add("running", -1)
        usage.add("running_bytes", -memory_bytes)
        usage.wait_since(since)
        if self._looking is None:  # Nobody tells when another process has ended a run, or a session has ended.
            self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)
        return False

    def _end(self, tenant: Tenant, memory_bytes: int) -> None:
        self._free += 1
        tenant.usage.add("running", -1)
        tenant.usage.add("running_bytes", -memory_bytes)
        self._next()

    def _leave(self, tenant: Tenant) -> None:
        """Give the place of a run to others, but not its memory."""
        self._aside += 1
        tenant.usage.add("waiting", 1)
        self._end(tenant, 0)

    async def _come_back(self, tenant: Tenant, ends: bool) -> None:
        """Wait for a place again, before those who have not begun; a run that ends has one, which it gives back."""
        entry = _Waiting(asyncio.get_running_loop().create_future(), 0)
        try:
            if not ends:
                self._returning.append((tenant, entry))
                self._next()
                await entry.turn
        finally:
            if not entry.turn.done() or entry.turn.cancelled():
                entry.turn.cancel()
                self._free -= 1
                tenant.usage.add("running", 1)
            tenant.usage.add("waiting", -1)
            self._aside -= 1

    async def _wait(self, tenant: Tenant, memory_bytes: int) -> None:
        usage, limits = tenant.usage, tenant.limits
        if not tenant.waiting:
            usage.wait_since(0)
        if usage.total("memory_bytes") + memory_bytes > limits.memory_bytes and not usage.total("running"):
            raise TooMuchError(
                f"The tenant {tenant.name!r} may use {limits.memory_bytes:,} bytes of memory, and a run may "
                f"have {memory_bytes:,}: close sessions, end programs, or ask for less by limits.memory_bytes."
            )
        tenant.check_waiting()
        entry = _Waiting(asyncio.get_running_loop().create_future(), memory_bytes)
        tenant.waiting.append(entry)
        usage.add("waiting", 1)
        if tenant not in self._rotation:
            self._rotation.append(tenant)
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                await entry.turn
        except BaseException as error:
            if entry.turn.done() and not entry.turn.cancelled():  # Its turn came just now.
                self._end(tenant, memory_bytes)
            if isinstance(error, TimeoutError):
                raise TooMuchError(f"The run has waited for {_QUEUE_SECONDS:g} s; the server is busy.", 5.0) from None
            raise
        finally:
            usage.add("waiting", -1)
            if entry in tenant.waiting:
                tenant.waiting.remove(entry)
                if not tenant.waiting:
                    usage.wait_since(0)

    def _next(self) -> None:
        """Begin what can begin; who has begun something is last in the next round."""
        for tenant, entry in list(self._returning):
            if entry.turn.done() or self._begin(tenant, 0, entry.since):
                self._returning.remove((tenant, entry))
                resolve(entry.turn)
        begun = True
        while begun:
            begun = False
            for tenant in list(self._rotation):
                if not tenant.waiting:
                    self._rotation.remove(tenant)
                    continue
                first = tenant.waiting[0]
                if first.turn.done():  # It was cancelled.
                    tenant.waiting.popleft()
                    begun = True
                elif self._begin(tenant, first.memory_bytes, first.since):
                    tenant.waiting.popleft()
                    first.turn.set_result(None)
                    self._rotation.remove(tenant)
                    self._rotation.append(tenant)
                    begun = True
                    break

    def _look(self) -> None:
        self._looking = None
        self._next()


class _Entry(TenantLimits):
    token: str = Field(min_length=1)


def read_tenants(file: Path) -> dict[str, Tenant]:
    """The tenants of a file (YAML or JSON): limits by names, and a `token` for each, such as `${TEAM_A_TOKEN}`.

    Raises:
        RequestError: It cannot be read, or has something else.
        MissingDependencyError: ruamel.yaml is not installed.
    """
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError as error:
        raise missing("ruamel.yaml", "cli") from error
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
        if any(each.name == str(name) for each in found.values()):  # A number and its text.
            raise RequestError(f"{file}: {name}: there are two tenants of this name.")
        limits = TenantLimits.model_validate(entry.model_dump(exclude={"token"}))
        found[token] = Tenant(str(name), limits)
    return found


def new_token() -> str:
    """A new token."""
    return secrets.token_urlsafe(24)

"""Servers on several machines behind one: the front, which has the callers, and replicas, which have the sandboxes.

The front gives what is new to the replica that does least, and sends what is about a sandbox or session to its owner.
What a replica had not begun to answer when it died, another one does. A *register*, one for all, knows which replicas
there are, and passes on the counts of tenants. Nothing here is about Ray; see `ray_serve`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from coderoom.contracts import WebApp
from coderoom.errors import SandboxUnavailable
from coderoom.integrations.http import Message, Receive, Send
from coderoom.integrations.service.failures import SessionLostError
from coderoom.integrations.service.peers import Address, Peers
from coderoom.integrations.service.tenants import Tenant
from coderoom.integrations.service.usage import without_gauges

MOST_PROCESSES: Final = 64
"""So many members the register may have at a time: the front, and replicas, of which some are about to end."""
_UNHEARD_SECONDS: Final = 30.0
EXCHANGE_SECONDS: Final = 0.2
_START_SECONDS: Final = (
    15.0  # So long a request waits for the first replica, or for one in the place of those that died.
)
_LOOK_SECONDS: Final = 0.1
_MOST_DEATHS: Final = 3  # So often a request may be there when a replica dies, which it may have caused.
_ANY: Final = ""


@dataclass
class News:
    """What a member of the register says of itself.

    Attributes:
        owner: Its name.
        address: Where it serves; `None`: it is the front.
        rows: The counts of tenants that have changed, by their numbers.
        known: Which counts of the others it has.
        leaves: Whether it takes nothing new.
        gone: Whether it has ended.
    """

    owner: str
    address: tuple[str, int] | None
    rows: dict[int, bytes] = field(default_factory=dict)
    known: int = 0
    leaves: bool = False
    gone: bool = False


@dataclass
class Answer:
    """What the register says.

    Attributes:
        number: The number of the member.
        rows: Counts of others that have changed, by the numbers of the member and of the tenant.
        known: Which these are.
        replicas: Where the others serve, and whether they take what is new.
        stage: How far the end of the server has come: "", "draining" or "ended".
    """

    number: int
    rows: dict[tuple[int, int], bytes]
    known: int
    replicas: dict[str, tuple[tuple[str, int], bool]]
    stage: str


@dataclass
class _Member:
    number: int
    address: tuple[str, int] | None
    heard: float
    leaves: bool = False


class Register:
    """Knows the members: the front and its replicas."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}
        self._ended: set[str] = set()
        self._rows: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._version = 1
        self._stage = ""
        self._failure = ""

    def exchange(self, news: News) -> Answer | None:
        """Hear a member, and tell it of the others. `None`: it was not heard for too long, and counts as dead."""
        for owner, member in list(self._members.items()):
            if owner != news.owner and time.monotonic() - member.heard > _UNHEARD_SECONDS:
                self.end(owner)
        if news.owner in self._ended:
            return None
        member = self._members.get(news.owner) or self._enter(news)
        member.heard, member.leaves = time.monotonic(), news.leaves
        for tenant, row in news.rows.items():
            self._version += 1
            self._rows[member.number, tenant] = self._version, row
        if news.gone:
            self.end(news.owner)
        rows = {
            place: row
            for place, (version, row) in self._rows.items()
            if version > news.known and (place[0] != member.number or not news.known)
        }
        replicas = {
            owner: (each.address, not each.leaves)
            for owner, each in self._members.items()
            if each.address is not None and owner != news.owner
        }
        return Answer(member.number, rows, self._version, replicas, self._stage)

    def _enter(self, news: News) -> _Member:
        number = min(set(range(MOST_PROCESSES)) - {each.number for each in self._members.values()})
        member = self._members[news.owner] = _Member(number, news.address, time.monotonic())
        return member

    def end(self, owner: str) -> None:
        """Forget a member that has ended; what it did still counts."""
        member = self._members.pop(owner, None)
        if member is None:
            return
        self._ended.add(owner)
        for (number, tenant), (_, row) in self._rows.items():
            if number == member.number:
                self._version += 1
                self._rows[number, tenant] = self._version, without_gauges(row)

    def enter_stage(self, stage: str) -> None:
        """Say how far the end of the server has come."""
        self._stage = stage

    def fail(self, why: str) -> None:
        """Note why a replica cannot start."""
        self._failure = why

    def failure(self) -> str:
        """Why the last replica that could not start could not."""
        return self._failure


class Membership:
    """Exchanges counts with the register, for as long as this process serves.

    Args:
        owner: The name of this process.
        address: Where it serves; `None`: it is the front.
        tenants: Whose counts these are, in the same order in all processes.
        exchange: Calls the register.
    """

    def __init__(
        self,
        owner: str,
        address: tuple[str, int] | None,
        tenants: Sequence[Tenant],
        exchange: Callable[[News], Awaitable[Answer | None]],
    ) -> None:
        self._news = News(owner, address)
        self._tenants = tenants
        self._exchange = exchange
        self._sent: dict[int, bytes] = {}
        self._exchanging = asyncio.Lock()
        self._next: asyncio.Future[bool] | None = None
        self.replicas: dict[str, tuple[tuple[str, int], bool]] = {}
        self.stage = ""
        self.leaves = False

    async def exchange(self, *, gone: bool = False) -> bool:
        """Tell what has changed, and hear it; whether this process still is a member.

        Raises:
            OSError: The register has ended.
        """
        async with self._exchanging:
            self._next = None
            news, rows = self._news, {number: each.usage.row for number, each in enumerate(self._tenants)}
            changed = {number: row for number, row in rows.items() if self._sent.get(number) != row}
            news.rows = changed if news.known else {}
            news.leaves, news.gone = self.leaves, gone
            answer = await self._exchange(news)
            if answer is None:
                return False
            if news.known:
                self._sent = rows
            else:
                for each in self._tenants:  # An earlier process may have had the number; what it did still counts.
                    each.usage.count_as(answer.number)
            for (process, number), row in answer.rows.items():
                self._tenants[number].usage.put(process, row)
            news.known, self.replicas, self.stage = answer.known, answer.replicas, answer.stage
            return True

    async def refresh(self) -> None:
        """Exchange now, if there are other replicas. Those who ask while others wait for it share one exchange."""
        if self.replicas:
            if self._next is None:
                self._next = asyncio.ensure_future(self.exchange())
            with suppress(OSError):
                await asyncio.shield(self._next)

    @property
    def uses_more_or_less(self) -> bool:
        """Whether what this process uses has changed since the last exchange."""
        gauges = (each.usage.gauges for each in self._tenants)
        return any(not self._sent.get(number, b"").startswith(each) for number, each in enumerate(gauges))


class _Replicas:
    """Where the replicas are; see `Addresses`."""

    def __init__(self) -> None:
        self.membership: Membership | None = None

    def all(self) -> Mapping[str, tuple[tuple[str, int], bool]]:
        return {} if self.membership is None else self.membership.replicas

    async def find(self, owner: str) -> Address | None:
        """See `Addresses`."""
        return self.all()[owner][0] if owner in self.all() else None

    async def others(self, owner: str) -> Mapping[str, Address]:
        """See `Addresses`."""
        return {each: address for each, (address, _) in self.all().items()}


class Front(Peers):
    """The replicas, for the process that has the callers. It runs nothing itself.

    Args:
        owner: The name of this process.
        secret: What its requests prove themselves by.
        lost: Is called with the name of a replica that is not there any more.
    """

    def __init__(self, owner: str, secret: str, lost: Callable[[str], object]) -> None:
        self._lost = lost
        self._replicas = _Replicas()
        super().__init__(owner, self._replicas, secret)
        self.refuses = False
        self._working: Counter[str] = Counter()
        self._turns: dict[str, int] = {}

    def join(self, membership: Membership) -> None:
        """Say which replicas there are."""
        self._replicas.membership = membership

    @property
    def is_idle(self) -> bool:
        """Whether no replica does what is not about a sandbox or session."""
        return not self._working.total()

    def owner_of(self, scope: Message) -> str:
        """See `Peers.owner_of`. What is new is for any replica."""
        found = super().owner_of(scope)
        return _ANY if found == self.owner and scope["method"] == "POST" else found

    async def forward(self, owner: str, scope: Message, receive: Receive, send: Send) -> None:
        """See `Peers.forward`. What a replica has not begun to answer when it dies, another one does."""
        if owner != _ANY:
            try:
                await super().forward(owner, scope, receive, send)
            except SessionLostError:
                self._lost(owner)
                raise
            return
        if self.refuses:
            raise SandboxUnavailable("The server ends; another takes its place, or will.")
        body, tried, deaths = await receive(), set[str](), 0
        while deaths < _MOST_DEATHS:
            parts = [body]

            async def received(parts: list[Message] = parts) -> Message:
                return parts.pop() if parts else await receive()

            chosen = await self._choose(tried)
            tried.add(chosen)
            self._working[chosen] += 1
            try:
                await super().forward(chosen, scope, received, send)
                return
            except SandboxUnavailable:
                deaths += 1
            except SessionLostError:  # It has not even heard the request.
                self._lost(chosen)
            finally:
                self._working[chosen] -= 1
        raise SandboxUnavailable(f"{deaths} replicas have ended before they answered.")

    async def _choose(self, tried: Collection[str]) -> str:
        """The replica that does least, and of these the one whose turn it is."""
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            ready = [owner for owner, (_, takes) in self._replicas.all().items() if takes and owner not in tried]
            if ready:
                chosen = min(ready, key=lambda owner: (self._working[owner], self._turns.get(owner, 0)))
                self._turns[chosen] = max(self._turns.values(), default=0) + 1
                return chosen
            await asyncio.sleep(_LOOK_SECONDS)
        raise SandboxUnavailable("There is no replica of this server just now; try again.")


class ForFront:
    """Lets in the front alone. Hears of the others before something new, and tells them before it answers.

    Args:
        app: The application.
        peers: What knows the secret of the front.
        membership: Tells the others.
    """

    def __init__(self, app: WebApp, peers: Peers, membership: Membership) -> None:
        self._app = app
        self._peers = peers
        self._membership = membership

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request of the front."""

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start" and self._membership.uses_more_or_less:
                await self._membership.refresh()
            await send(message)

        if scope["type"] == "http":
            if self._peers.sender(dict(scope["headers"])) is None:
                await send({"type": "http.response.start", "status": 403, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            if scope["method"] == "POST":
                await self._membership.refresh()
        await self._app(scope, receive, told)

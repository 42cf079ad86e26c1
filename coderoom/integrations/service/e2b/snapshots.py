"""The snapshots of sandboxes: states of which sandboxes are made. One is a fork of a main session that nobody uses."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from coderoom._util.tasks import run_uncancellable
from coderoom.errors import RequestError
from coderoom.integrations.service.boxes import Boxes, KeptSession
from coderoom.integrations.service.e2b.sandboxes import MOST_SECONDS, TEMPLATES, E2BSandbox
from coderoom.integrations.service.failures import NotFoundError
from coderoom.integrations.service.tenants import Tenant

_NAME: Final = re.compile(r"[\w.-]{1,128}(:[\w.-]{1,128})?", re.ASCII)
_TAG: Final = ":default"
_MAKING: Final = re.compile(r"(/v2)?/sandboxes")
_NAMED: Final = re.compile(r"/templates/([^/]+)")


@dataclass(eq=False)
class Snapshot:
    """The state of a sandbox.

    Attributes:
        kept: The fork.
        source: The id of the sandbox.
        name: Its name with a tag, such as `mine:default`; "" if it has none.
        template: The template of the sandbox.
        env: Environment variables of the sandbox.
        given: Those of them that its maker has given it, if it was made of a snapshot, too.
        has_home: As `E2BSandbox.has_home`.
        keeps_memory: Whether the variables are part of it, and not only the files.
    """

    kept: KeptSession
    source: str
    name: str
    template: str
    env: Mapping[str, str]
    given: Mapping[str, str]
    has_home: bool
    keeps_memory: bool
    made: float = field(default_factory=time.time)

    @property
    def id(self) -> str:
        """Its id."""
        return self.kept.box.id

    def is_called(self, text: str) -> bool:
        """Whether a text is its id, or its name, of which the tag can be left out."""
        return text in (self.id, f"{self.id}{_TAG}", self.name) or (bool(self.name) and f"{text}{_TAG}" == self.name)

    def to_json(self) -> dict[str, Any]:
        """It as the clients have it."""
        return {"snapshotID": self.id, "names": [self.name] if self.name else [], "made": self.made}


class Snapshots:
    """All of them.

    Args:
        boxes: The boxes of the server.
    """

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = boxes
        self._known: dict[str, Snapshot] = {}

    def of(self, tenant: Tenant) -> list[Snapshot]:
        """Those of a tenant, newest first."""
        self._known = {id: each for id, each in self._known.items() if self.boxes.has(each.kept.box)}
        return [each for each in reversed(self._known.values()) if each.kept.box.tenant is tenant]

    def find(self, tenant: Tenant, text: str) -> Snapshot:
        """The newest with an id or a name.

        Raises:
            NotFoundError: The tenant has no such snapshot.
        """
        found = next((each for each in self.of(tenant) if each.is_called(text)), None)
        if found is None:
            templates = " and ".join(map(repr, reversed(TEMPLATES)))
            raise NotFoundError(f"There is no template {text!r:.100}: this server has {templates}, and snapshots.")
        return found

    async def take(self, sandbox: E2BSandbox, name: str = "", memory: bool = True) -> Snapshot:
        """Keep the state of a sandbox; an earlier snapshot with the name loses that.

        Raises:
            RequestError: The name cannot be one, or the state cannot be kept.
            TooMuchError: The tenant has too many.
        """
        if name and (_NAME.fullmatch(name) is None or name.partition(":")[0] in TEMPLATES):
            raise RequestError(f"{name!r:.100} cannot be the name of a snapshot: letters, digits, and any of .-_ can.")
        kept = await self.boxes.part(sandbox.main, idle_seconds=MOST_SECONDS)
        full = name and (name if ":" in name else f"{name}{_TAG}")
        for each in self.of(kept.box.tenant):
            each.name = "" if each.name == full else each.name
        facts = sandbox.template, sandbox.env, sandbox.given, sandbox.has_home, memory
        made = self._known[kept.box.id] = Snapshot(kept, sandbox.id, full, *facts)
        return made

    async def begin(
        self, snapshot: Snapshot, given: Mapping[str, str], metadata: Mapping[str, str], template: str
    ) -> E2BSandbox:
        """Make a sandbox of a snapshot.

        Args:
            snapshot: The snapshot.
            given: More environment variables.
            metadata: What its maker notes about it.
            template: What it is called to be made of.

        Raises:
            RequestError: The state is lost.
            TooMuchError: The tenant has too many.
        """
        idle = snapshot.kept.box.tenant.limits.idle_seconds
        main = await self.boxes.part(snapshot.kept, idle_seconds=idle, sandboxes=1, metadata=dict(metadata))
        try:
            with main.box:
                await main.session.start()
            if not snapshot.keeps_memory:
                await main.restart()
        except BaseException:
            await run_uncancellable(self.boxes.end(main.box))
            raise
        made = E2BSandbox(main.box, main, template, {**snapshot.env, **given}, snapshot.has_home)
        made.given = {**snapshot.given, **given}
        return made

    async def end(self, snapshot: Snapshot) -> None:
        """Remove one; sandboxes that were made of it stay."""
        await self.boxes.end(snapshot.kept.box)

    async def owner_of(self, scope: Any, body: bytes) -> str | None:
        """Which of the server's processes has the snapshot that a request names by its body or its path.

        `None`: it names none that another process has.
        """
        text = _named(scope, body)
        if not text or text in TEMPLATES:
            return None
        peers = self.boxes.peers
        owner = peers.owner_of({"headers": [], "method": "", "path": text})
        if owner == peers.owner:
            query = f"name={quote(text, '', errors='replace')}".encode()
            asked = {**scope, "method": "GET", "path": "/snapshots", "query_string": query}
            found = [each for answer in await peers.answers(asked) for each in answer["found"]]
            newest = max(found, key=lambda each: float(each["made"]), default=None)
            if newest is None:
                return None
            owner = peers.owner_of({"headers": [], "method": "", "path": str(newest["snapshotID"])})
        return owner


def _named(scope: Any, body: bytes) -> str:
    if scope["method"] == "POST" and _MAKING.fullmatch(scope["path"]):
        try:
            facts = json.loads(body)
        except (ValueError, RecursionError):
            return ""
        return str(facts.get("templateID", "")) if isinstance(facts, dict) else ""
    found = _NAMED.fullmatch(scope["path"]) if scope["method"] == "DELETE" else None
    return found[1] if found else ""

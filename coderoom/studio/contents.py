"""Puts a gallery and its teams into Studio, and keeps what the user changed there."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from coderoom.configs import shipped_teams
from coderoom.studio.environment import forget

USER: Final = "guestuser@gmail.com"
"""The id of the only user in a Studio without authentication."""

_FIRST_TEAM: Final = "coder-reviewer"
_RECORD: Final = "coderoom.json"


class _Row(TypedDict):
    id: int
    sha256: str


_KNOWN = TypeAdapter(dict[str, _Row])


class RefusedError(Exception):
    """The server refused a request, with this HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Rest:
    """The REST routes of Studio's server."""

    def __init__(self, port: int, timeout: float = 120) -> None:
        self._url = f"http://127.0.0.1:{port}/api"
        self._timeout = timeout

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Send a request and return the data of the response."""
        try:
            with httpx.Client(trust_env=False, timeout=self._timeout) as client:
                response = client.request(method, self._url + path, json=body, params=query)
        except httpx.HTTPError as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        if response.status_code != httpx.codes.OK:
            raise RefusedError(response.status_code, response.text)
        try:
            answer = response.json()
        except ValueError:
            raise RefusedError(response.status_code, response.text) from None
        if isinstance(answer, dict) and answer.get("status") is False:
            raise RefusedError(response.status_code, str(answer.get("message")))
        return answer["data"] if isinstance(answer, dict) and "data" in answer else answer


def forget_if_new(folder: Path) -> None:
    """Forget what earlier starts put into Studio, if its database is gone."""
    if not any(folder.glob("*.db")):
        forget(folder / _RECORD)


class Contents:
    """The contents that CodeRoom put into Studio, recorded in a file of Studio's folder."""

    def __init__(self, rest: Rest, folder: Path) -> None:
        self._rest = rest
        self._file = folder / _RECORD
        self._known: dict[str, _Row] = {}
        with contextlib.suppress(OSError, ValueError):
            self._known = _KNOWN.validate_json(self._file.read_bytes())

    def put(self, gallery: Mapping[str, Any]) -> list[str]:
        """Add a gallery and its teams, or update those of an earlier start; return what was left unchanged, in words.

        What the user has changed or deleted in Studio stays as it is.
        """
        with contextlib.suppress(RefusedError):
            # The first request makes Studio create its own gallery, which stays too.
            self._rest.ask("GET", "/gallery/", user_id=USER)
        left = self._put("gallery", "/gallery", "config", gallery)
        # Studio lists the newest first, and its playground preselects the first.
        shipped = shipped_teams()
        # The user's own teams come last, after the shipped one to start with.
        order = dict.fromkeys(shipped, 0) | {_FIRST_TEAM: 1}
        for team in sorted(gallery["components"]["teams"], key=lambda team: order.get(team["label"], 2)):
            left += self._put(f"team {team['label']}", "/teams", "component", team)
        return left

    def _put(self, name: str, route: str, field: str, wanted: Any) -> list[str]:
        known = self._known.get(name)
        row: dict[str, Any] = {"user_id": USER}
        if known is not None:
            try:
                found = self._rest.ask("GET", f"{route}/{known['id']}", user_id=USER)
            except RefusedError as refused:
                if refused.status == httpx.codes.NOT_FOUND:
                    return [f"{name}: deleted in Studio"]
                raise
            if _digest(found[field]) != known["sha256"]:
                return [f"{name}: changed in Studio"]
            if _digest(wanted) == known["sha256"]:
                return []
            row["id"] = known["id"]  # Without the timestamps, which Studio does not accept back.
        stored = self._rest.ask("POST", f"{route}/", {**row, field: wanted})
        self._known[name] = {"id": stored["id"], "sha256": _digest(wanted)}
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._known, indent=2), encoding="utf-8")
        new.replace(self._file)
        return []


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

"""Puts a gallery and its teams into Studio, and keeps what the user changed there."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from coderoom.configs import shipped_teams
from coderoom.studio.folder import forget
from coderoom.studio.rest import RefusedError, Rest

__all__ = ["USER", "Contents", "forget_if_new"]

USER: Final = "guestuser@gmail.com"
"""The user id of everybody in a Studio without authentication."""

_NOT_FOUND: Final = 404
_TO_BEGIN_WITH: Final = "coder-reviewer"
_RECORD: Final = "coderoom.json"


def forget_if_new(folder: Path) -> None:
    """Forget what was put there, if Studio's database is gone."""
    if not any(folder.glob("*.db")):
        forget(folder / _RECORD)


class Contents:
    """The contents that were put into Studio, recorded in a file of its folder.

    Args:
        rest: The Studio's routes.
        folder: Its folder.
    """

    def __init__(self, rest: Rest, folder: Path) -> None:
        self._rest = rest
        self._file = folder / _RECORD
        self._known: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError):
            known = json.loads(self._file.read_text(encoding="utf-8"))
            self._known = {name: row for name, row in known.items() if _is_row(row)}

    def put(self, gallery: Mapping[str, Any]) -> list[str]:
        """Put a gallery and its teams there, or update what an earlier start put there.

        What was changed or deleted in Studio since then stays so.

        Returns:
            What was left alone, in words.

        Raises:
            OSError: Studio does not answer, or its folder cannot be written.
            RefusedError: Studio refuses.
        """
        with contextlib.suppress(RefusedError):
            # Studio creates its own gallery when it is first asked, which stays too.
            self._rest.ask("GET", "/gallery/", user_id=USER)
        left = self._put("gallery", "/gallery", "config", gallery)
        # Studio lists the newest first, and its playground preselects the first.
        shipped = shipped_teams()
        for team in sorted(gallery["components"]["teams"], key=lambda team: _place(team["label"], shipped)):
            left += self._put(f"team {team['label']}", "/teams", "component", team)
        return left

    def _put(self, name: str, route: str, field: str, wanted: Any) -> list[str]:
        known = self._known.get(name)
        row: dict[str, Any] = {"user_id": USER}
        if known is not None:
            found = self._find(route, known["id"])
            if found is None:
                return [f"{name}: deleted in Studio"]
            if _digest(found[field]) != known["sha256"]:
                return [f"{name}: changed in Studio"]
            if _digest(wanted) == known["sha256"]:
                return []
            row["id"] = known["id"]  # Without the timestamps, which Studio does not accept back.
        stored = self._rest.ask("POST", f"{route}/", {**row, field: wanted})
        self._known[name] = {"id": stored["id"], "sha256": _digest(wanted)}
        self._save()
        return []

    def _find(self, route: str, number: int) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._rest.ask("GET", f"{route}/{number}", user_id=USER)
        except RefusedError as refused:
            if refused.status == _NOT_FOUND:
                return None
            raise
        return found

    def _save(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._known, indent=2), encoding="utf-8")
        new.replace(self._file)


def _place(label: str, shipped: Collection[str]) -> int:
    """The user's own teams come last, after the shipped one to start with."""
    return 1 if label == _TO_BEGIN_WITH else 0 if label in shipped else 2


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("id"), int) and isinstance(row.get("sha256"), str)


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

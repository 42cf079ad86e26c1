"""A second start of `coderoom studio`: what was there stays, and what is new comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coderoom.configs import shipped_teams
from tests.studio.driving import USER
from tests.support.commands import ROOT
from tests.support.studio import Studio, start_studio

pytestmark = pytest.mark.studio


def own_team(path: Path, description: str) -> None:
    text = (ROOT / "examples" / "team.yaml").read_text()
    path.write_text(f"{text}\nlabel: mine\ndescription: {description}\n")


def gallery(studio: Studio) -> list[dict[str, Any]]:
    rows = studio.ask("GET", "/gallery/", user_id=USER)
    return [row["config"] for row in rows if row["config"]["id"] == "coderoom"]


def test_what_was_there_stays_and_what_is_new_comes(tmp_path: Path) -> None:
    mine, app = tmp_path / "mine.yaml", tmp_path / "app"
    own_team(mine, "The first.")

    def start() -> Any:
        return start_studio(app, "--no-browser", "--team", "mine.yaml", cwd=tmp_path)

    with start() as studio:
        assert studio.left == []
        first = studio.teams()
        assert set(first) == {*shipped_teams(), "mine"}
        # One's own team stands first, and then the one to begin with.
        assert list(first)[:2] == ["mine", "coder-reviewer"]
        edited = {**first["analyst"]["component"], "description": "Edited by hand."}
        row = {"id": first["analyst"]["id"], "user_id": USER, "component": edited}
        studio.ask("POST", "/teams/", row)
        studio.ask("DELETE", f"/teams/{first['code-act']['id']}", user_id=USER)
        made = {**first["coder-reviewer"]["component"], "label": "made"}
        studio.ask("POST", "/teams/", {"user_id": USER, "component": made})
        session = studio.ask("POST", "/sessions/", {"user_id": USER, "name": "kept", "team_id": first["mine"]["id"]})
    own_team(mine, "The second.")
    left = ["team analyst: changed in Studio", "team code-act: deleted in Studio"]
    with start() as studio:
        assert studio.left == left
        second = studio.teams()
        assert set(second) == {*first, "made"} - {"code-act"}
        assert second["analyst"]["component"]["description"] == "Edited by hand."
        assert second["mine"]["component"]["description"] == "The second."
        assert second["mine"]["id"] == first["mine"]["id"]
        assert second["coder-reviewer"] == first["coder-reviewer"]
        assert studio.ask("GET", f"/sessions/{session['id']}", user_id=USER)["name"] == "kept"
        [config] = gallery(studio)
        [team] = [team for team in config["components"]["teams"] if team["label"] == "mine"]
        assert team["description"] == "The second."
        [row] = [row for row in studio.ask("GET", "/gallery/", user_id=USER) if row["config"]["id"] == "coderoom"]
        row["config"]["components"]["models"] = []
        body = {"user_id": USER, "config": row["config"]}
        studio.ask("PUT", f"/gallery/{row['id']}", body, user_id=USER)
    # A gallery that was edited is left alone.
    with start() as studio:
        assert sorted(studio.left) == ["gallery: changed in Studio", *left]
        assert [config["components"]["models"] for config in gallery(studio)] == [[]]
    # Whoever takes Studio's database away begins anew.
    for path in app.glob("*.db"):
        path.unlink()
    with start() as studio:
        assert studio.left == []
        assert set(studio.teams()) == {*shipped_teams(), "mine"}

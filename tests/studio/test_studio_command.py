"""`coderoom studio`: one command that brings up AutoGen Studio with CodeRoom's teams."""

from __future__ import annotations

from coderoom.configs import make_gallery
from coderoom.studio import Rest
from tests.support.studio import Studio

USER = "guestuser@gmail.com"


def teams_of(studio: Studio) -> dict[int, dict]:
    return {row["id"]: row["component"] for row in rest_of(studio).ask("GET", "/teams/", user_id=USER)}


def rest_of(studio: Studio) -> Rest:
    return Rest(int(studio.url.rpartition(":")[2]))


def test_the_shipped_teams_are_there(studio_server: Studio) -> None:
    wanted = make_gallery()["components"]["teams"]
    assert sorted(teams_of(studio_server).values(), key=lambda team: team["label"]) == wanted

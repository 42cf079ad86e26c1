"""Pages of others, which a browser lets talk to a server of this machine."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.studio import driving
from tests.studio.driving import USER
from tests.studio.teams import shipped_teams
from tests.support.studio import Studio

pytestmark = pytest.mark.studio

OTHERS = [
    {"Origin": "http://evil.example"},
    {"Origin": "https://127.0.0.1:{port}"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Host": "evil.example:{port}"},  # A name that was made to point here.
    {"Host": "127.0.0.1.evil.example:{port}"},
    {"Host": "evil.example@127.0.0.1", "Origin": "http://evil.example"},
    {"Host": ""},
    {"Host": "["},
    {"Host": "127.0.0.1:evil"},
    # Pictures, scripts and frames, which have no origin.
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
]
OWN: list[dict[str, str]] = [
    {},
    {"Origin": "http://127.0.0.1:{port}"},
    {"Host": "localhost:{port}", "Origin": "http://localhost:{port}"},
    {"Host": "localhost:9000", "Origin": "http://localhost:9000"},  # A tunnel.
    {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
    {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},  # A bookmark.
]
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def _filled(headers: Mapping[str, str], port: int | None) -> dict[str, str]:
    return {name: value.format(port=port) for name, value in headers.items()}


def _status(studio: Studio, method: str, path: str, headers: Mapping[str, str]) -> int:
    place = urlsplit(studio.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    try:
        connection.request(method, path, body=b"{}" if method == "POST" else None, headers=_filled(headers, place.port))
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("headers", OTHERS, ids=str)
@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/api/health"), ("POST", "/api/validate/")])
def test_others_are_refused(studio_server: Studio, headers: dict[str, str], method: str, path: str) -> None:
    assert _status(studio_server, method, path, headers) in (400, 403)


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_own_pages_and_programs_are_not(studio_server: Studio, headers: dict[str, str]) -> None:
    assert _status(studio_server, "GET", "/", headers) == 200
    assert _status(studio_server, "GET", "/api/health", headers) == 200
    assert _status(studio_server, "POST", "/api/validate/", headers) == 422  # What is sent is no component.


def test_others_may_have_links_to_the_pages_and_to_nothing_else(studio_server: Studio) -> None:
    assert _status(studio_server, "GET", "/", LINK) == 200
    assert _status(studio_server, "POST", "/", LINK) == 403
    # There, to ask for somebody's teams is to make them.
    for path in ("/api/teams/?user_id=somebody", "/api/gallery/?user_id=somebody", "/api/health"):
        assert _status(studio_server, "GET", path, LINK) == 403


def test_nor_may_others_open_websockets(studio_server: Studio, driver: driving.Studio) -> None:
    # One without participants would blank the builder for whoever looks next.
    team = driver.add_team(shipped_teams()[0])
    session = driver.post("/sessions/", {"user_id": USER, "name": "a session", "team_id": team["id"]})["id"]
    run = driver.post("/runs/", {"session_id": session, "user_id": USER})["run_id"]
    address = f"{studio_server.url.replace('http', 'ws', 1)}/api/ws/runs/{run}"
    for origin in ("http://evil.example", "null"):
        with pytest.raises(InvalidStatus, match="403"):
            connect(address, origin=Origin(origin), proxy=None)
    with connect(address, origin=Origin(studio_server.url), proxy=None) as connection:
        assert "connected" in str(connection.recv(10))


def test_it_stands_in_no_frame_of_others(studio_server: Studio) -> None:
    with urllib.request.urlopen(f"{studio_server.url}/", timeout=30) as answer:
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert "img-src 'self' data: blob:" in answer.headers["Content-Security-Policy"]

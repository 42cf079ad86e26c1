"""Driving a running AutoGen Studio as its page does: by REST and by the websocket of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

__all__ = ["USER", "Run", "Studio", "texts"]

USER = "guestuser@gmail.com"
"""The id of the only user in a Studio without authentication."""

Json = dict[str, Any]


class Studio:
    """A running Studio.

    Args:
        url: Where it is, for instance `http://127.0.0.1:8081`.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=f"{self.url}/api", trust_env=False, timeout=30)

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        """What a GET answers as `data`."""
        return self._data(self._http.get(path, params={"user_id": USER, **query}))

    def post(self, path: str, body: Json) -> Any:
        """What a POST answers as `data`."""
        return self._data(self._http.post(path, json=body))

    def post_raw(self, path: str, body: Json) -> Any:
        """What a POST answers, where that has no `data`."""
        return self._http.post(path, json=body).raise_for_status().json()

    def add_team(self, component: Mapping[str, Any]) -> Json:
        """Save a team, as the builder does; the answer is the whole record."""
        saved: Json = self.post("/teams/", {"user_id": USER, "component": dict(component)})
        return saved

    def start(self, component: Mapping[str, Any], task: str, session: int | None = None) -> Run:
        """Save a team, make a session, or take one, and begin a run in it."""
        team = self.add_team(component)
        if session is None:
            session = self.post("/sessions/", {"user_id": USER, "name": "a session", "team_id": team["id"]})["id"]
        run = self.post("/runs/", {"session_id": session, "user_id": USER})["run_id"]
        tab = ExitStack()
        address = f"{self.url.replace('http', 'ws', 1)}/api/ws/runs/{run}"
        started = Run(self, session, run, tab, tab.enter_context(connect(address, proxy=None, max_size=None)))
        started.send(type="start", task=task, files=[], team_config=team["component"])
        return started

    @contextmanager
    def running(self, component: Mapping[str, Any], task: str) -> Iterator[Run]:
        """The same; the socket is closed at the end."""
        run = self.start(component, task)
        try:
            yield run
        finally:
            run.close_tab()

    def run(self, component: Mapping[str, Any], task: str, session: int | None = None) -> Run:
        """The same, to its end."""
        run = self.start(component, task, session)
        try:
            run.wait()
        finally:
            run.close_tab()
        return run

    @staticmethod
    def _data(response: httpx.Response) -> Any:
        response.raise_for_status()
        answer = response.json()
        assert answer["status"], answer
        return answer["data"]


@dataclass
class Run:
    """A run, and what its websocket has sent.

    Attributes:
        studio: Where it runs.
        session: The session's number.
        number: Its own.
        tab: What is open for it.
        socket: Its websocket.
        events: What has come, in order.
    """

    studio: Studio
    session: int
    number: int
    tab: ExitStack
    socket: ClientConnection
    events: list[Json] = field(default_factory=list)

    def send(self, **message: Any) -> None:
        """Say something to Studio."""
        self.socket.send(json.dumps(message))

    def stop(self) -> None:
        """Press the button that stops it."""
        self.send(type="stop", reason="Cancelled by user")

    def close_tab(self) -> None:
        """Close the websocket without a word, as a page does that is closed."""
        self.tab.close()

    def next(self, seconds: float = 60) -> Json:
        """The next that the websocket sends."""
        event: Json = json.loads(self.socket.recv(timeout=seconds))
        self.events.append(event)
        return event

    def wait_for_text(self, text: str, seconds: float = 60) -> Json:
        """Read on until something with this text in it has come."""
        end = time.monotonic() + seconds
        while text not in json.dumps((event := self.next(end - time.monotonic())).get("data")):
            pass
        return event

    def wait(self, seconds: float = 90) -> Json:
        """Read on until the run has ended, and return its record."""
        end = time.monotonic() + seconds
        while self.events[-1:] == [] or self.events[-1]["type"] not in ("result", "completion"):
            self.next(end - time.monotonic())
        return self.wait_for_record(end - time.monotonic())

    def wait_for_record(self, seconds: float = 30) -> Json:
        """Wait until the run is no longer active, and return its record."""
        end = time.monotonic() + seconds
        while (record := self.record())["status"] in ("created", "active"):
            assert time.monotonic() < end, record
            time.sleep(0.05)
        return record

    def record(self) -> Json:
        """What Studio has stored of it."""
        found: Json = self.studio.get(f"/runs/{self.number}")
        return found

    def stored(self) -> list[Json]:
        """The messages that Studio has stored of it, as a page shows them later; model calls are left out."""
        runs = self.studio.get(f"/sessions/{self.session}/runs")["runs"]
        mine = next(run for run in runs if int(run["id"]) == self.number)
        messages = [message["config"] for message in mine["messages"]]
        return [message for message in messages if message["source"] != "llm_call_event"]

    @property
    def sent(self) -> list[Json]:
        """The messages that the websocket has sent, model calls left out."""
        found = [event["data"] for event in self.events if event["type"] == "message"]
        return [message for message in found if message["source"] != "llm_call_event"]

    @property
    def chunks(self) -> str:
        """What was streamed."""
        return "".join(event["data"]["content"] for event in self.events if event["type"] == "message_chunk")


def texts(messages: list[Json]) -> list[str]:
    """The messages as text, pictures as `<image>`."""
    found = []
    for message in messages:
        content = message["content"]
        parts = [content] if isinstance(content, str) else content
        found.append("".join(part if isinstance(part, str) else "<image>" for part in parts))
    return found

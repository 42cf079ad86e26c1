"""One run of a team in AutoGen Studio, as its page does it: `python studio_run.py URL USER TEAM_ID TASK`.

It runs in Studio's environment, and prints each message of the websocket as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from urllib.request import Request, urlopen

from websockets.sync.client import connect


def main(url: str, user: str, team: str, task: str) -> None:
    """Run it."""
    component = _ask(f"{url}/api/teams/{team}?user_id={user}")["component"]
    session = _ask(f"{url}/api/sessions/", {"user_id": user, "name": "test", "team_id": int(team)})["id"]
    run = _ask(f"{url}/api/runs/", {"user_id": user, "session_id": session})
    with connect(f"ws{url.removeprefix('http')}/api/ws/runs/{run['run_id']}", max_size=None) as socket:
        socket.send(json.dumps({"type": "start", "task": task, "files": [], "team_config": component}))
        for text in socket:
            print(text, flush=True)  # noqa: T201
            if json.loads(text)["type"] in ("result", "completion", "error"):
                break
        # Whoever goes before the run is stored stops it.
        while _ask(f"{url}/api/runs/{run['run_id']}")["status"] == "active":
            time.sleep(0.05)


def _ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=30) as answer:
        return json.load(answer)["data"]


if __name__ == "__main__":
    main(*sys.argv[1:])

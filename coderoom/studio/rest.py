"""Requests to a server on this machine."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

__all__ = ["RefusedError", "Rest"]


class RefusedError(Exception):
    """The server refused a request.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


class Rest:
    """The REST routes of a server that listens on 127.0.0.1.

    Args:
        port: Its port.
        timeout: The timeout of a request, in seconds.
    """

    def __init__(self, port: int, timeout: float = 120) -> None:
        self._port = port
        self._timeout = timeout

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Send a request and return the data of the response.

        Raises:
            RefusedError: The server refused.
            OSError: Nothing answers.
        """
        target = f"/api{path}?{urlencode(query)}" if query else f"/api{path}"
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout)) as connection:
            headers = {"Content-Type": "application/json"}
            try:
                connection.request(method, target, None if body is None else json.dumps(body).encode(), headers)
                answer = connection.getresponse()
                text = answer.read().decode("utf-8", "replace")
            except http.client.HTTPException as error:
                raise ConnectionError(f"{type(error).__name__}: {error}") from error
        if answer.status != 200:
            raise RefusedError(answer.status, text)
        try:
            said = json.loads(text)
        except ValueError:
            raise RefusedError(answer.status, text) from None
        if isinstance(said, dict) and said.get("status") is False:
            raise RefusedError(answer.status, str(said.get("message")))
        return said.get("data") if isinstance(said, dict) and "data" in said else said

"""The pages of all runs in the journal in a browser, live while they go on. Used by `coderoom runs serve`."""

from __future__ import annotations

import hmac
import secrets
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Final, cast
from urllib.parse import parse_qs, parse_qsl, quote, unquote

from coderoom._util.files import refusing
from coderoom.errors import CodeRoomError, JournalError
from coderoom.runs.export.run import SUFFIXES, ExportKind, export_run
from coderoom.runs.journal import Journal, RunEntry
from coderoom.runs.pages.batches import batches_answer
from coderoom.runs.pages.compare import compare_page
from coderoom.runs.pages.frame import page_of, text_html
from coderoom.runs.pages.run import run_page
from coderoom.runs.pages.run_controls import act, now_html
from coderoom.runs.pages.run_requests import request_html
from coderoom.runs.pages.run_told import ToldRun
from coderoom.runs.pages.runs_list import runs_list_page

_HOST: Final = "127.0.0.1"
_PATIENCE_SECONDS: Final = 10
_LONGEST_FORM: Final = 1 << 20
_PART_SECONDS: Final = 0.5
_MOST_TOLD: Final = 4


class RunServer(ThreadingHTTPServer):
    """A server on this machine only, whose addresses begin with a secret token; the port 0 is any that is free."""

    daemon_threads = True

    def __init__(self, journal: Journal, port: int = 0) -> None:
        self.journal_path = journal.path
        self.token = secrets.token_urlsafe(24)
        with refusing(f"The port {port} cannot be used"):
            super().__init__((_HOST, port), _Handler)
        self.hosts = {f"{_HOST}:{self.server_port}", f"localhost:{self.server_port}"}
        self._told: dict[str, ToldRun] = {}  # The one that was asked for last is at the end.
        self._lock = Lock()
        self._closing = Event()
        Thread(target=self._catch_up, daemon=True).start()
        self.url = f"http://{_HOST}:{self.server_port}/{self.token}/"

    def told(self, entry: RunEntry) -> ToldRun:
        """A run as its page had it before; those are kept that go on, and that somebody looks at."""
        with self._lock:
            told = self._told.pop(entry.id, None) or ToldRun(entry, live=True)
            if entry.state == "running":
                self._told[entry.id] = told
                for run in list(self._told)[:-_MOST_TOLD]:
                    del self._told[run]
        return told

    def _catch_up(self) -> None:
        """Index what is new, so that it can be searched, for half of the time."""
        while not self._closing.wait(_PART_SECONDS):
            with closing(Journal(self.journal_path)) as journal, suppress(JournalError):
                if journal.path.exists():
                    journal.catch_up(_PART_SECONDS)

    def server_close(self) -> None:
        """Close the server."""
        self._closing.set()
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what has failed, but not that a browser has left."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE_SECONDS
    server: RunServer

    def _place(self) -> tuple[str, str] | None:
        """What is asked for below the token, and the query; `None`, after an answer, if the token is another one."""
        path, _, query = self.path.partition("?")
        token, _, place = path.lstrip("/").partition("/")
        # Another host name would be that of a page that makes a browser ask here.
        known = self.headers.get("Host") in self.server.hosts
        if known and hmac.compare_digest(token.encode(), self.server.token.encode()):
            return place, query
        self._send(404, "There is nothing here. The address has a token, which `coderoom runs serve` prints.")
        return None

    def do_POST(self) -> None:
        """Do what a form of a page asks for."""
        if (found := self._place()) is None:
            return
        if self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            self._send(403, "This form is of another page.")
            return
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > _LONGEST_FORM:
            self._send(413, f"A form has at most {_LONGEST_FORM >> 10} KiB.")
            return
        text = self.rfile.read(int(size)).decode("utf-8", "replace")
        run, _, what = found[0].rpartition("/")
        journal = Journal(self.server.journal_path)
        try:
            entry = journal.find(unquote(run))
            act(journal, entry, what, dict(parse_qsl(text, keep_blank_values=True)))
            self._send(303, "", more={"Location": f"/{self.server.token}/{quote(entry.id, safe='')}"})
        except CodeRoomError as error:
            body = f'<h1>Nothing was done</h1><p class="notice bad" role="alert">{text_html(error)}</p>'
            self._send(409, page_of("Nothing was done", body, trail=[("Runs", f"/{self.server.token}/")]), "text/html")
        finally:
            journal.close()

    def do_GET(self) -> None:
        """Answer a request."""
        if (found := self._place()) is None:
            return
        place, query = found
        journal = Journal(self.server.journal_path)  # A journal belongs to one thread.
        try:
            if place == "compare/":
                self._send(200, compare_page(journal, parse_qs(query).get("run", [])), "text/html")
                return
            if place.startswith("batches/"):
                below = place.removeprefix("batches/")
                text, media_type = batches_answer(journal.path, below, parse_qs(query).get("batch", []))
                self._send(200, text, media_type)
                return
            if place.endswith("/now"):
                now = now_html(journal, journal.find(unquote(place.removesuffix("/now"))))
                self._send(200, f'<div id="now">{now}</div>', "text/html")
                return
            run, _, kind = place.partition("/export/")
            if kind:
                self._send_export(journal, journal.find(unquote(run)), kind)
                return
            run, _, request = place.partition("/request/")
            entry = journal.find(unquote(run)) if run else None
            if entry is not None and request:
                self._send(200, request_html(journal, entry, request), "text/html")
                return
            facts: object = journal.version()
            if entry is not None:
                facts = entry.state, journal.last_step(entry.id), journal.questions(entry.id)
            version = f'"{sha256(repr((self.path, facts)).encode()).hexdigest()[:32]}"'
            if self.headers.get("If-None-Match") == version:
                self._send(304, "")
                return
            is_whole = self.headers.get("HX-Target") not in ("run", "runs")  # Else the page has the rest of it.
            if entry is None:
                page = runs_list_page(journal, dict(parse_qsl(query)), is_whole=is_whole)
            else:
                have = None if is_whole else frozenset(self.headers.get("Coderoom-Have", "").split(","))
                told = self.server.told(entry)
                with told.lock:
                    page = run_page(journal, entry, live=True, have=have, told=told)
            self._send(200, page, "text/html", {"ETag": version})
        except CodeRoomError as error:
            body = f'<h1>There is nothing here</h1><p class="notice bad" role="alert">{text_html(error)}</p>'
            self._send(404, page_of("Nothing", body, trail=[("Runs", f"/{self.server.token}/")]), "text/html")
        finally:
            journal.close()

    def _send_export(self, journal: Journal, entry: RunEntry, kind: str) -> None:
        text = export_run(journal, entry, cast(ExportKind, kind))  # It refuses another kind.
        name = quote(entry.id + next(suffix for suffix, each in SUFFIXES.items() if each == kind), safe="")
        self._send(200, text, "text/plain", {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"})

    def _send(
        self, status: int, text: str, media_type: str = "text/plain", more: Mapping[str, str] | None = None
    ) -> None:
        body = text.encode()
        self.send_response(status)
        headers = {
            "Content-Type": f"{media_type}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
            **(more or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the addresses have the token."""

"""What pages are sent with besides."""

from __future__ import annotations

import urllib.request

import pytest

from tests.support.commands import ROOT
from tests.support.studio import Studio

pytestmark = pytest.mark.studio

MORE = (ROOT / "coderoom" / "studio" / "pages.html").read_bytes()


def test_a_page_has_more_at_its_end_and_all_else_is_as_it_was(studio_server: Studio) -> None:
    for path in ("/", "/build/"):
        with urllib.request.urlopen(f"{studio_server.url}{path}", timeout=30) as answer:
            page = answer.read()
        assert page.endswith(MORE)
        assert page.count(b"</html>") == 1
        assert int(answer.headers["Content-Length"]) == len(page)
        assert answer.headers["Cache-Control"] == "no-store"
    with urllib.request.urlopen(f"{studio_server.url}/api/health", timeout=30) as answer:
        assert MORE not in answer.read()

"""The server of the pages: what it answers, and to whom."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

from coderoom.runs import Journal, Step
from tests.support.browser import serving

from .test_runs_list import HOSTILE, add_run


def get(url: str, **headers: str) -> tuple[int, str, str]:
    """The status, the text and the version of an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode(), answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), ""


def test_a_list_that_is_as_before_is_not_sent_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    add_run(journal, 1)
    with serving(journal) as url:
        while journal.catch_up(0):  # The server indexes the run, which is a change.
            time.sleep(0.1)
        status, page, version = get(url)
        assert (status, "Task 1 of many" in page) == (200, True)
        assert get(url, **{"If-None-Match": version})[0] == 304
        assert get(f"{url}?q=none", **{"If-None-Match": version})[0] == 200
        add_run(journal, 2)
        status, page, _ = get(url, **{"If-None-Match": version})
        assert (status, "Task 2 of many" in page) == (200, True)
    journal.close()


def test_runs_of_any_name_are_shown_and_compared(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    add_run(journal, 1, task=HOSTILE, answer=HOSTILE, output=HOSTILE, error=HOSTILE)
    odd = journal.begin("batch", "team", "Of a batch", "model", {}, "java script:a/b?c#1")
    journal.end(odd, "error", {})
    with serving(journal) as url:
        _, page, _ = get(url)
        assert 'href="./java%20script%3Aa%2Fb%3Fc%231"' in page
        assert "Of a batch" in get(f"{url}java%20script%3Aa%2Fb%3Fc%231")[1]
        status, page, _ = get(f"{url}compare/?run=run-001&run=java%20script:a/b%3Fc%231")
        assert status == 200
        assert "Of a batch" in page
        assert "<script>document" not in page
        assert "- outcome: ok" in page.replace('<span class="sign">-</span><del>', "- ")
        for chosen, words in (
            ("", "0 were chosen"),
            ("?run=run-001", "1 was chosen"),
            ("?run=run-001&run=none", "no run &#x27;none"),
        ):
            status, text, _ = get(f"{url}compare/{chosen}")
            assert status == 404
            assert words in text
            assert f'href="{url.removeprefix("http://127.0.0.1:").lstrip("0123456789")}"' in text
    journal.close()


def test_the_page_of_a_run_has_links_to_it_as_other_files(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    run = journal.begin("run", "team", "A task", None, {}, "a/b ü")
    journal.add(run, Step(1, "message", "coder", "", 0.0, 0.0, None, {"type": "TextMessage", "content": "Words."}))
    journal.end(run, "ok", {})
    with serving(journal) as url:
        page = get(f"{url}a%2Fb%20%C3%BC")[1]
        for kind, suffix in (("notebook", "ipynb"), ("markdown", "md")):
            link = f"a%2Fb%20%C3%BC/export/{kind}"
            assert f'href="./{link}"' in page
            with urllib.request.urlopen(f"{url}{link}", timeout=10) as answer:
                assert "Words." in answer.read().decode()
                named = f"attachment; filename*=UTF-8''a%2Fb%20%C3%BC.{suffix}"
                assert (answer.headers["Content-Disposition"], answer.headers.get_content_type()) == (
                    named,
                    "text/plain",
                )
        status, text, _ = get(f"{url}a%2Fb%20%C3%BC/export/script")
        assert (status, "has run no code" in text) == (404, True)
        assert get(f"{url}a%2Fb%20%C3%BC/export/pdf")[0] == 404
    journal.close()

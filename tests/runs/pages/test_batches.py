"""The batches that the server of pages knows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from coderoom.runs import Journal
from coderoom.runs.batches import note_batch, noted_batches
from coderoom.runs.item_run import Result
from coderoom.runs.pages.batch import write_batch_page
from tests.support.browser import serving
from tests.support.hostile import HOSTILE, tags_of

from .test_server import get


def make_batch(folder: Path, status: str) -> Path:
    """The folder of a batch with one result and its page."""
    (folder / "pages").mkdir(parents=True)
    about = {"team_name": HOSTILE, "model": HOSTILE, "models": {}, "items": HOSTILE}
    (folder / "batch.json").write_text(json.dumps(about))
    result = Result("n/1", 1, status, "ok", "", HOSTILE, 5, 1, 0.1, 0, 0, "n_1-1", 0.1, checked_by="code")
    (folder / "results.jsonl").write_text(json.dumps(vars(result)) + "\n")
    (folder / "pages" / "n_1-1.html").write_text("<title>of n/1</title>")
    write_batch_page(folder)
    return folder


def test_batches_are_listed_shown_and_compared_and_nothing_else_of_their_folders_is_read(
    tmp_path: Path, monkeypatch: Any
) -> None:
    journal = Journal(tmp_path / "journal")
    monkeypatch.setenv("CODEROOM_JOURNAL", str(journal.path))
    first, second = (make_batch(tmp_path / name, how) for name, how in (("<b>1", "passed"), ("2", "failed")))
    for folder in (first, second, first):
        note_batch(folder)
    gone = make_batch(tmp_path / "gone", "passed")
    note_batch(gone)
    (gone / "batch.json").unlink()
    with Path(f"{journal.path}-batches").open("a") as lines:
        lines.write('"cut off')
    assert noted_batches(journal.path) == [second, first]
    assert noted_batches(second / "journal.sqlite3") == [second]  # Its own one.
    monkeypatch.setenv("CODEROOM_JOURNAL", "off")
    note_batch(make_batch(tmp_path / "unknown", "passed"))
    assert noted_batches(journal.path) == [second, first]

    (second / "secret.html").write_text("secret")
    (second / "pages" / "link.html").symlink_to(journal.path)
    with serving(journal) as url:
        page = get(f"{url}batches/")[1]
        newer, older = re.findall('name="batch" value="([^"]*)"', page)
        assert not {"img", "b>1"} & set(tags_of(page))
        assert "document.title" in page
        status, compared, _ = get(f"{url}batches/compare/?batch={newer}&batch={older}")
        assert status == 200
        worse = compared.partition("Worse in the second (1)")[2]
        assert f'href="../{newer}/pages/n_1-1.html"' in worse
        assert "of n/1" in get(f"{url}batches/{newer}/pages/n_1-1.html")[1]
        assert '<a href="../../">Runs</a>' in get(f"{url}batches/{newer}/index.html")[1]
        for path in ("secret.html", "pages/link.html", "../2/index.html", "results.jsonl", "pages/..%2Fsecret.html"):
            assert get(f"{url}batches/{newer}/{path}")[0] == 404, path
        for chosen in (f"?batch={newer}", f"?batch={newer}&batch={newer}", f"?batch={newer}&batch=x"):
            assert get(f"{url}batches/compare/{chosen}")[0] == 404, chosen

        results = [
            vars(replace(Result(**json.loads((second / "results.jsonl").read_text())), id=f"n/{n}")) for n in (1, 2)
        ]
        (second / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in results))
        assert '<td class="number" data-label="runs">2</td>' in get(f"{url}batches/")[1]
        (second / "results.jsonl").write_text("[]\n")
        status, page, _ = get(f"{url}batches/")
        assert (status, "cannot be read" in page, older in page) == (200, True, True)
    journal.close()

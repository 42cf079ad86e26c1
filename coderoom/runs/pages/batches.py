"""The batches that the server of pages knows: their list, their pages, and the comparison of two of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, Final

from coderoom._util.files import refusing
from coderoom._util.text import in_dollars
from coderoom.errors import CodeRoomError, RequestError
from coderoom.runs.batch_diff import compare_batches
from coderoom.runs.batch_report import RESULTS, SETTINGS, models_of, read_results, read_settings, summarize
from coderoom.runs.batches import noted_batches
from coderoom.runs.pages.batch_diff import batch_diff_page
from coderoom.runs.pages.frame import page_of, path_html, text_html, under

_FILES: Final = re.compile(r"index\.html|pages/[\w.-]+\.html|pages/assets/\w+\.(?:css|js)")
"""What a batch has that is for browsers."""
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

_NONE: Final = (
    '<div class="empty">There are no batches yet. <code>coderoom batch</code> makes them, and here are those of this '
    "journal.</div>"
)


def batches_answer(journal: Path, place: str, chosen: Sequence[str]) -> tuple[str, str]:
    """What the server answers, and its media type.

    Args:
        journal: The journal, beside which the list of batches is.
        place: What is asked for, below the address of the list.
        chosen: The batches that are compared.

    Raises:
        RequestError: There is no such thing.
    """
    folders = {sha256(str(folder).encode()).hexdigest()[:12]: folder for folder in noted_batches(journal)}
    if not place:
        return _list_page(folders), "text/html"
    if place == "compare/":
        return _compared(folders, chosen), "text/html"
    name, _, file = place.partition("/")
    if name not in folders or not _FILES.fullmatch(file):
        raise RequestError("There is no such page of a batch.")
    path = folders[name] / file
    if not path.resolve().is_relative_to(folders[name].resolve()):
        raise RequestError("There is no such page of a batch.")
    with refusing(f"The page {str(path)!r} cannot be read"):
        text = path.read_text("utf-8")
    if file.endswith(".html"):
        up = "../" * file.count("/")
        text = under(text, [("Runs", f"{up}../../"), ("Batches", f"{up}../")])
    return text, _TYPES[file.rpartition(".")[2]]


def _compared(folders: dict[str, Path], chosen: Sequence[str]) -> str:
    if len(set(chosen)) != 2 or not all(name in folders for name in chosen):
        raise RequestError("Choose two batches to compare.")
    second, first = (name for name in folders if name in chosen)  # The newest is the first of the list.
    both = folders[first], folders[second]
    compared = compare_batches(*map(read_results, both))
    page = batch_diff_page(
        compared, both, (read_settings(both[0]), read_settings(both[1])), (f"../{first}", f"../{second}")
    )
    return under(page, [("Runs", "../../"), ("Batches", "../")])


@dataclass(frozen=True)
class _Batch:
    """A line of the list."""

    settings: Any
    counts: dict[str, int]
    total: int
    rate: tuple[float, float, float] | None
    tokens: int
    cost: float | None


@lru_cache(maxsize=512)
def _read(folder: Path, changed: tuple[int, ...]) -> _Batch:
    """What is known of a batch; `changed` says whether its files are as before."""
    found = summarize(read_results(folder))
    tokens = found.prompt_tokens + found.completion_tokens
    return _Batch(read_settings(folder), dict(found.counts), found.total, found.pass_at(1), tokens, found.cost_usd)


def _changed(folder: Path) -> tuple[int, ...]:
    """What is another one when a batch has more results."""
    files = [folder / SETTINGS, folder / RESULTS]
    return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)


def _list_page(folders: dict[str, Path]) -> str:
    rows = "".join(_row(name, folder) for name, folder in folders.items())
    columns = ("last start", "team", "model", "folder", "runs", "passed", "pass rate", "tokens", "cost")
    head = "".join(f'<th scope="col"{" class=number" * (at > 3)}>{name}</th>' for at, name in enumerate(columns))
    table = (
        '<form action="compare/" id="compare"><div class="scroll" role="region" tabindex="0" aria-label="Batches">'
        '<table class="stacked wide"><thead><tr><th><span class="hidden">compare</span></th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        '<div class="foot"><button class="main">Compare two batches</button></div></form>'
    )
    body = f'<h1>Batches</h1><div id="runs">{table if rows else _NONE}</div>'
    return page_of(
        "Batches", body, styles=["runs_list.css"], scripts=["runs_list.js"], live=True, trail=[("Runs", "../")]
    )


def _row(name: str, folder: Path) -> str:
    link = f'<a href="{name}/index.html">{path_html(folder)}</a>'
    try:
        started = f"{datetime.fromtimestamp((folder / SETTINGS).stat().st_mtime).astimezone():%Y-%m-%d %H:%M}"
        batch = _read(folder, _changed(folder))
    except (CodeRoomError, OSError) as error:
        return f'<tr><td></td><td colspan="9">{path_html(folder)}: {text_html(error)}</td></tr>'
    rate = "" if batch.rate is None else f"{batch.rate[0]:.1%} ({batch.rate[1]:.1%} to {batch.rate[2]:.1%})"
    texts = {
        "last start": started,
        "team": text_html(batch.settings["team_name"]),
        "model": text_html(models_of(batch.settings)),
        "folder": link,
    }
    numbers = {
        "runs": f"{batch.total:,}",
        "passed": f"{batch.counts.get('passed', 0):,}",
        "pass rate": rate,
        "tokens": f"{batch.tokens:,}",
        "cost": in_dollars(batch.cost) if batch.cost else "",
    }
    cells = "".join(
        f'<td data-label="{title}" dir="auto"{" class=task" * (title == "folder")}>{cell}</td>'
        for title, cell in texts.items()
    )
    cells += "".join(f'<td class="number" data-label="{title}">{cell}</td>' for title, cell in numbers.items())
    box = f'<input type="checkbox" name="batch" value="{name}" aria-label="compare {escape(str(folder))}">'
    return f'<tr><td class="choose">{box}</td>{cells}</tr>'

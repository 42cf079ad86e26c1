"""`SearchIndex`: finds entries with a name and a description by words. Used by the searches for tools and skills."""

from __future__ import annotations

import difflib
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_LONGEST_QUERY = 500
_MOST_WORDS = 20
_LEAST_PREFIX = 3
_CLOSE = 0.75
# The scripts that are written without spaces between words: each character counts as a word.
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)")
# Words that say nothing of what is wanted, of the language in which most descriptions are written.
_EMPTY = frozenset(["a", "an", "and", "by", "for", "from", "in", "is", "of", "on", "or", "the", "this", "to", "with"])
_CREATE = (
    "CREATE VIRTUAL TABLE entries USING fts5(name, kind, doc, more, tokenize = 'porter unicode61 remove_diacritics 2')"
)
_RANKED = "SELECT rowid FROM entries WHERE entries MATCH ? ORDER BY bm25(entries, 8, 3, 4, 1), rowid LIMIT ?"


class Entry(NamedTuple):
    """What can be found.

    Attributes:
        name: Its name, whose words count most.
        kind: Where it comes from.
        doc: What it is for.
        more: Other text about it, such as its parameters.
    """

    name: str
    kind: str
    doc: str
    more: str


class SearchIndex:
    """Ranks entries by the words that they share with a query, in memory. It can be used from any thread."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(_CREATE)
        rows = [tuple(" ".join(words(text)) for text in entry) for entry in entries]
        self._database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
        self._known = sorted({word for row in rows for text in row for word in text.split()})
        self._all = set(self._known)
        counted = Counter(word for row in rows for word in {word for text in row for word in text.split()})
        self._common = _EMPTY | {word for word, count in counted.items() if count * 2 > len(rows)}

    def search(self, query: str, most: int) -> list[int]:
        """The places of the best entries in the sequence, the best one first; none if no word fits."""
        said = list(dict.fromkeys(words(query[:_LONGEST_QUERY])))
        wanted = [word for word in said if word not in self._common] or said
        terms = [term for word in wanted[:_MOST_WORDS] for term in self._terms(word)]
        if not terms:
            return []
        with self._lock:
            found = self._database.execute(_RANKED, (" OR ".join(terms), most)).fetchall()
        return [row[0] - 1 for row in found]

    def _terms(self, word: str) -> list[str]:
        """What to look for: the word and what begins with it, or else the known words that are spelled nearly so."""
        terms = [f'"{word}"']
        if len(word) >= _LEAST_PREFIX:
            terms.append(f'"{word}" *')
            if word not in self._all:
                terms += [f'"{known}"' for known in difflib.get_close_matches(word, self._known, 3, _CLOSE)]
        return terms


def words(text: str, *, whole: bool = True) -> list[str]:
    """The words of a text in lower case: `createIssue` and `create_issue` have the same two.

    With `whole`, a word that was split is there as a whole, too: `GitHub` is `github`, `git` and `hub`.
    """
    found: list[str] = []
    for word in _WORD.findall(text):
        parts = _HUMP.split(word)
        found += [part.casefold() for part in ([word, *parts] if whole and len(parts) > 1 else parts)]
    return found

"""Finding functions by words."""

from __future__ import annotations

import pytest

from coderoom._util.search_index import Entry, SearchIndex

ENTRIES = [
    Entry("createIssue", "github", "Open a ticket in a repository.", "repo str\nlabels list[str]"),
    Entry("send_email", "office", "Send a letter to somebody.", "to str\nsubject str"),
    Entry("calendar_events", "office", "List what happens on a day.", "day str"),
    Entry("größe_messen", "werkzeug", "Die Länge einer Datei in Bytes.", "datei str"),
    Entry("to_pinyin", "text", "将中文转换为拼音", "text str"),
    Entry("list_issues", "github", "All tickets of a repository.", "repo str"),
]
INDEX = SearchIndex(ENTRIES)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("issue create", "createIssue"),
        ("createissue", "createIssue"),
        ("create_issue", "createIssue"),
        ("LISTING the issues", "list_issues"),
        ("labels", "createIssue"),
        ("emails", "send_email"),
        ("mail", "send_email"),
        ("calender", "calendar_events"),
        ("cal", "calendar_events"),
        ("office letter", "send_email"),
        ("GROSSE", "größe_messen"),
        ("Länge der Datei", "größe_messen"),
        ("中文", "to_pinyin"),
    ],
)
def test_the_best_comes_first(query: str, first: str) -> None:
    assert ENTRIES[INDEX.search(query, 5)[0]].name == first


@pytest.mark.parametrize(
    "query", ["", "  ", '"', "'); DROP TABLE entries", "NEAR(", "a* OR b", "doc:", "^", "\0", "\ud800"]
)
def test_the_syntax_of_the_database_means_nothing(query: str) -> None:
    INDEX.search(query, 5)
    assert INDEX.search("emails", 5) == [1]


def test_nothing_fits_and_not_more_than_wanted() -> None:
    assert INDEX.search("xylophone", 5) == []
    assert len(INDEX.search("repository", 1)) == 1
    assert INDEX.search("word " * 100_000 + "email", 5) == []  # Only the beginning counts.

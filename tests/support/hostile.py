"""Text that tries to become something else, and how to see whether it did."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = (
    "</pre></script><script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">\u202e\x1b[31m"
)


def tags_of(page: str) -> list[str]:
    """The tags that open in a page."""
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: object) -> None:
            found.append(tag)

    Reader().feed(page)
    return found

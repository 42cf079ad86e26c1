from __future__ import annotations

from coderoom.configs.schema import fields_of, summary_of


def test_docstrings_are_read() -> None:
    class Documented:
        """Says what it is,
        in two lines.

        And more.

        Args:
            first: One
                thing: or two.
            second (str | None, optional): Another.

        Example:
            third: None of these.
        """

    assert summary_of(Documented) == "Says what it is, in two lines."
    assert fields_of(Documented) == {"first": "One thing: or two.", "second": "Another."}
    assert (summary_of(type("Silent", (), {})), fields_of(type("Silent", (), {}))) == ("", {})

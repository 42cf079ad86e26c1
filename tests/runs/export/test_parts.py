"""Outputs with the files that code has shown, in their places."""

from __future__ import annotations

from coderoom.runs.export.parts import Ran


def test_files_stand_where_they_were_shown() -> None:
    one, two, late = ({"name": name, "position": at} for name, at in (("1", 2), ("2", 4), ("3", None)))
    ran = Ran("a", [], "ab  cd", "ok", [late, two, one])
    assert list(ran.shown()) == ["ab", one, two, "cd", late]
    assert list(Ran("a", [], "ab", "ok", [late]).shown()) == ["ab", late]
    assert list(Ran("a", [], " ", "ok").shown()) == []
    assert [ran.ended, Ran("a", [], "", "error", undone=True).ended] == ["ok", "error, and undone"]

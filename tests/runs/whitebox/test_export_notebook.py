"""What a notebook shows of the output of code."""

from __future__ import annotations

import json
from typing import Any

from coderoom.outcome import Outcome
from coderoom.runs.export.notebook import notebook_of
from coderoom.runs.export.parts import Ran


def test_what_a_notebook_shows() -> None:
    def shown(kind: str, position: int | None, data: bytes = b"<b>", outcome: str = Outcome.OK) -> list[dict[str, Any]]:
        file = {"name": "it", "size": len(data), "media_type": kind, "position": position}
        ran = Ran("a", [("python", "first"), ("python", "second")], "out", outcome, [file])
        cells = json.loads(notebook_of("It", {}, [ran], lambda _: data))["cells"]
        first, second = (cell for cell in cells if cell["cell_type"] == "code")
        assert (first["execution_count"], first["outputs"]) == (1, [])
        assert second["execution_count"] == 2
        outputs: list[dict[str, Any]] = second["outputs"]
        return outputs

    text, table = shown("text/html", 3)
    assert (text["name"], text["text"]) == ("stdout", ["out"])
    assert table["data"] == {"text/plain": ["it, 3 bytes"], "text/html": ["<b>"]}
    assert shown("text/html", 3, outcome="error")[0]["name"] == "stderr"
    for plain in (shown("text/html", None), shown("text/html", 3, b"x" * 1_000_001), shown("text/csv", 3)):
        assert plain[1]["data"].keys() == {"text/plain"}
    assert len(shown("text/html", 3, b"x" * 1_000_000)[1]["data"]) == 2
    assert shown("image/png", None)[1]["data"]["image/png"] == "PGI+"

"""Figures that code leaves open come back as artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox

pytest.importorskip("matplotlib")

_PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("preload", [(), ("matplotlib.pyplot",)], ids=["imported by the code", "preloaded"])
async def test_a_figure_is_kept_when_it_is_shown_and_when_the_cell_ends(preload: tuple[str, ...]) -> None:
    async with Sandbox(preload=preload) as sandbox:
        result = await sandbox.run(
            "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.plot([3, 4])\nplt.title('second')\nNone"
        )
    assert result.outcome is Outcome.OK
    assert result.output == ""
    assert [(artifact.name, artifact.media_type) for artifact in result.artifacts] == [
        ("figure-1.png", "image/png"),
        ("figure-2.png", "image/png"),
    ]
    contents = [artifact.data or b"" for artifact in result.artifacts]
    assert all(content.startswith(_PNG) for content in contents)
    assert contents[0] != contents[1]


async def test_what_the_code_has_saved_is_not_kept_twice() -> None:
    async with Sandbox() as sandbox:
        result = await sandbox.run(
            "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1])\n"
            "fig.savefig('mine.svg')\nplt.show()"
        )
    assert [artifact.name for artifact in result.artifacts] == ["mine.svg"]


async def test_files_of_that_name_stay_and_figures_do_not_come_again(tmp_path: Path) -> None:
    (tmp_path / "figure-1.png").write_bytes(b"mine")
    async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
        drawn = await session.run("import matplotlib.pyplot as plt\nplt.plot([1])\nNone")
        after = await session.run("1")
    assert (tmp_path / "figure-1.png").read_bytes() == b"mine"
    assert [artifact.path for artifact in drawn.artifacts] == [tmp_path / "figure-2.png"]
    assert (tmp_path / "figure-2.png").read_bytes().startswith(_PNG)
    assert after.artifacts == ()


async def test_a_cell_that_fails_keeps_its_figures_too() -> None:
    async with Sandbox() as sandbox:
        result = await sandbox.run("import matplotlib.pyplot as plt\nplt.plot([1])\n1 / 0")
    assert result.outcome is Outcome.ERROR
    assert [artifact.name for artifact in result.artifacts] == ["figure-1.png"]


async def test_a_figure_that_cannot_be_saved_is_named_and_spoils_nothing() -> None:
    async with Sandbox() as sandbox:
        result = await sandbox.run(
            "import matplotlib.pyplot as plt\nfig = plt.figure()\nfig.text(0.5, 0.5, r'$\\frac{$')\nx = 1\nx"
        )
    assert (result.outcome, result.value) == (Outcome.OK, 1)
    assert "A figure could not be saved: ValueError" in result.stderr

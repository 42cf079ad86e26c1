"""Pictures and HTML of a last expression, and figures that code leaves open, come back as artifacts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox, Session

pytest.importorskip("matplotlib")

_PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
async def drawing() -> AsyncIterator[Sandbox]:
    """One that has imported what draws."""
    async with Sandbox(preload=["matplotlib.pyplot"]) as sandbox:
        yield sandbox


@pytest.mark.slow
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


@pytest.mark.slow
async def test_what_the_code_has_saved_is_not_kept_twice(drawing: Sandbox) -> None:
    result = await drawing.run(
        "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1])\nfig.savefig('mine.svg')\nplt.show()"
    )
    assert [artifact.name for artifact in result.artifacts] == ["mine.svg"]


@pytest.mark.slow
async def test_files_of_that_name_stay_and_figures_do_not_come_again(tmp_path: Path) -> None:
    (tmp_path / "figure-1.png").write_bytes(b"mine")
    async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
        drawn = await session.run("import matplotlib.pyplot as plt\nplt.plot([1])\nNone")
        after = await session.run("1")
    assert (tmp_path / "figure-1.png").read_bytes() == b"mine"
    assert [artifact.path for artifact in drawn.artifacts] == [tmp_path / "figure-2.png"]
    assert (tmp_path / "figure-2.png").read_bytes().startswith(_PNG)
    assert after.artifacts == ()


@pytest.mark.slow
async def test_a_cell_that_fails_keeps_its_figures_too(drawing: Sandbox) -> None:
    result = await drawing.run("import matplotlib.pyplot as plt\nplt.plot([1])\n1 / 0")
    assert result.outcome is Outcome.ERROR
    assert [artifact.name for artifact in result.artifacts] == ["figure-1.png"]


async def test_a_figure_that_cannot_be_saved_is_named_and_spoils_nothing(drawing: Sandbox) -> None:
    result = await drawing.run(
        "import matplotlib.pyplot as plt\nfig = plt.figure()\nfig.text(0.5, 0.5, r'$\\frac{$')\nx = 1\nx"
    )
    assert (result.outcome, result.value) == (Outcome.OK, 1)
    assert "A figure could not be saved: ValueError" in result.stderr


VALUE = "class Shown:\n    def {}(self): {}\nShown()"


@pytest.mark.parametrize(
    ("method", "answer", "name", "media_type", "data"),
    [
        ("_repr_png_", f"return {_PNG!r}", "value-1.png", "image/png", _PNG),
        ("_repr_png_", "return 'aGk=', {'width': 5}", "value-1.png", "image/png", b"hi"),
        ("_repr_jpeg_", "return b'jpeg'", "value-1.jpg", "image/jpeg", b"jpeg"),
        ("_repr_svg_", "return '<svg/>'", "value-1.svg", "image/svg+xml", b"<svg/>"),
        ("_repr_html_", "return '<b>é</b>'", "value-1.html", "text/html", "<b>é</b>".encode()),
    ],
)
async def test_a_last_expression_is_kept_as_notebooks_show_it(
    sandbox: Sandbox, method: str, answer: str, name: str, media_type: str, data: bytes
) -> None:
    result = await sandbox.run(VALUE.format(method, answer))
    assert (result.outcome, result.value_is_data, result.output) == (Outcome.OK, False, "")
    assert [(each.name, each.media_type, each.data) for each in result.artifacts] == [(name, media_type, data)]


async def test_a_picture_is_preferred_and_data_needs_none(sandbox: Sandbox) -> None:
    both = "class Shown(dict):\n    def _repr_html_(self): return 'x'\n    def _repr_png_(self): return {}\nShown()"
    assert [each.name for each in (await sandbox.run(both.format("b'x'"))).artifacts] == ["value-1.png"]
    assert [each.name for each in (await sandbox.run(both.format("None"))).artifacts] == ["value-1.html"]
    assert (await sandbox.run(both.format("b'x'") + "\n{}")).artifacts == ()


@pytest.mark.parametrize(
    "answer",
    [
        "1 / 0",
        "raise SystemExit(3)",
        "raise BaseException",
        "return 'x' * 3",
        "return bytes(9_000_000)",
        "import sys; sys.stderr = None; 1 / 0",
    ],
)
async def test_what_fails_in_such_a_method_spoils_nothing(session: Session, answer: str) -> None:
    result = await session.run(VALUE.format("_repr_png_", answer))
    assert (result.outcome, result.exit_code, result.error, result.artifacts) == (Outcome.OK, 0, None, ())
    assert "Shown object" in (result.value_repr or "")
    assert "stderr" in answer or "_repr_png_ could not be saved" in result.stderr
    assert (await session.run("6 * 7")).value == 42


@pytest.mark.parametrize("answer", ["return 5", "return None", "return (b'x' for _ in 'x')", "return ()"])
async def test_other_answers_are_ignored(sandbox: Sandbox, answer: str) -> None:
    result = await sandbox.run(VALUE.format("_repr_html_", answer))
    assert (result.outcome, result.artifacts) == (Outcome.OK, ())


async def test_such_a_method_ends_at_the_deadline(session: Session) -> None:
    result = await session.run(VALUE.format("_repr_png_", "import time; time.sleep(60)"), timeout=0.5)
    assert result.outcome is Outcome.TIMEOUT
    assert (await session.run("6 * 7")).value == 42


@pytest.mark.slow
async def test_a_closed_figure_is_kept_when_it_is_the_value(drawing: Sandbox) -> None:
    closed = "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\nplt.close(figure)\nfigure"
    async with drawing.session() as session:
        results = [
            await session.run(code) for code in (closed, "axes.plot([1])\nfigure", "figure.savefig('a.png')\nfigure")
        ]
    names = [[artifact.name for artifact in result.artifacts] for result in results]
    assert names == [["figure-1.png"], ["figure-2.png"], ["a.png"]]


async def test_what_is_displayed_is_in_order_with_the_text(drawing: Sandbox) -> None:
    code = """
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
class Table:
    def _repr_mimebundle_(self, **options): return {"text/plain": "Table", "text/html": "<td>é"}, {}
    def __repr__(self): return "Table"
figure, axes = plt.subplots()
print("é1")
display(Table())
axes.plot([1, 2])  # It is still open.
print("2")
plt.show()
display(figure, {"text/markdown": "*m*"})
display({"text/markdown": "*m*"}, raw=True)
handle = display(Figure(), display_id=True)
handle.update(3)
print("end")
"""
    result = await drawing.run(code)
    assert result.outcome is Outcome.OK, result
    text = result.output
    shown = {each.name: text[: each.position].splitlines()[-1] for each in result.artifacts}
    assert shown.keys() == {"value-1.html", "value-1.md", "figure-1.png", "figure-2.png", "figure-3.png"}
    assert (shown["value-1.html"], shown["figure-1.png"]) == ("Table", "2")
    assert shown["figure-2.png"].startswith("<Figure size 640x480 with 1 Axes>")
    assert shown["value-1.md"].startswith("{'text/markdown'")
    assert text.endswith("3\nend\n")


async def test_the_places_of_what_is_displayed_in_output_that_is_cut() -> None:
    code = "class P:\n    def _repr_png_(self): return b'png'\n    __repr__ = lambda self: 'P'\n"
    code += "display(P())\nprint('-' * 5000)\ndisplay(P())\nprint('-' * 5000)\ndisplay(P())\nprint('end')"
    async with Sandbox(limits={"output_bytes": 2000}) as sandbox:
        result = await sandbox.run(code)
    places = [each.position for each in result.artifacts]
    assert places[0] == 2
    middle, last = places[1] or 0, places[2] or 0
    assert result.output[last:] == "end\n"
    assert 200 < middle < result.output.index("left out")

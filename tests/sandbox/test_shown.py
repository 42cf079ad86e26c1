"""Results show themselves in notebooks: with their pictures, and nothing of them runs."""

from __future__ import annotations

import base64
from pathlib import Path

from coderoom.sandbox import Sandbox
from coderoom.sandbox.result import Artifact, ExecutionResult
from tests.support.hostile import HOSTILE, tags_of

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def html_of(result: ExecutionResult) -> str:
    return result._repr_html_()


async def test_a_result_has_output_value_error_and_pictures(sandbox: Sandbox) -> None:
    code = f"import base64\nopen('plot.png', 'wb').write(base64.b64decode({PNG!r}))\nprint({HOSTILE!r})\n"
    good, bad = await sandbox.run(f"{code}[1, {HOSTILE!r}]"), await sandbox.run(f"{code}raise ValueError({HOSTILE!r})")
    shown = html_of(good)
    assert f"data:image/png;base64,{PNG}" in shown
    assert "[1, &#x27;" in shown
    assert "ValueError" in html_of(bad)
    assert html_of(bad).count("Traceback") == 1  # It is in the output already.
    for each in (shown, html_of(bad)):
        assert set(tags_of(each)) <= {"div", "b", "small", "pre", "img"}


async def test_a_long_output_is_cut(sandbox: Sandbox) -> None:
    assert len(html_of(await sandbox.run("print('<' * 200_000)"))) < 60_000


def test_a_picture_that_became_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "work" / "a").mkdir(parents=True)
    path = tmp_path / "work" / "a" / "plot.png"
    artifact = Artifact("a/plot.png", 6, "image/png", path)
    path.write_bytes(b"shown")
    assert base64.b64encode(b"shown").decode() in artifact._repr_html_()
    path.unlink()
    assert "<img" not in artifact._repr_html_()
    path.symlink_to(tmp_path / "secret")
    assert "<img" not in artifact._repr_html_()

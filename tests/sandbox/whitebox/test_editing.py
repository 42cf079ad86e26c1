"""The functions with which code works on the files of a repository."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from coderoom.sandbox.guest.editing import (
    EditError,
    apply_diff,
    edit_file,
    list_files,
    read_file,
    search,
    write_file,
)

CODE = "import os\n\n\ndef area(width, height):\n    return width + height\n\n\ndef name():\n    return 'box'\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "box.py").write_text(CODE)
    return tmp_path


def refused(work: object, *arguments: object) -> str:
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    with pytest.raises(EditError) as caught:
        work(*arguments)  # type: ignore[operator]
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before
    return str(caught.value)


def test_files_are_listed_searched_and_read(folder: Path) -> None:
    write_file("tests/test_box.py", "def test_area():\n    assert area(2, 3) == 6\n")
    write_file(".git/config", "area")
    (folder / "picture.png").write_bytes(b"\x89PNG\0area\n")
    assert list_files().splitlines() == ["box.py", "picture.png", "tests/test_box.py"]
    assert list_files("test_*.py") == "tests/test_box.py"
    assert search(r"\barea\(", files="*.py").splitlines() == [
        "box.py:4: def area(width, height):",
        "tests/test_box.py:2:     assert area(2, 3) == 6",
    ]
    assert "Only the first 1 " in search("e", most=1)
    assert read_file("box.py", 4, 5) == (
        "     4| def area(width, height):\n     5|     return width + height\n[Lines 4 to 5 of 9.]"
    )
    assert "no text" in refused(read_file, "picture.png")
    assert "There is: box.py" in refused(read_file, "src/box.py")
    assert "no regular expression" in refused(search, "area(")
    assert "9 lines only" in refused(read_file, "box.py", 10)


@pytest.mark.parametrize("program", [each for each in ("grep", "rg") if each == "grep" or shutil.which("rg")])
def test_ripgrep_finds_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """With the program on the search path, and without."""
    for name in ("src/deep/a:b.py", "src/c.txt", ".hidden/d.py", ".git/e", ".venv/f.py", ".coderoom/output-1.txt"):
        write_file(name, "one\nneedle(1)\n")
    (folder / "bin").mkdir()
    (folder / "bin" / program).symlink_to(shutil.which(program) or "")
    monkeypatch.setenv("PATH", str(folder / "bin"))
    found = [".hidden/d.py:2: needle(1)", "src/c.txt:2: needle(1)", "src/deep/a:b.py:2: needle(1)"]
    assert search(r"needle\(\d\)").splitlines() == found
    assert search(r"needle", files="src/*").splitlines() == found[1:]
    assert search(r"needle", "src/deep", "*.py") == found[2]
    assert search(r"(?<!x)needle", files="*.txt") == found[1]  # Ripgrep knows no lookbehind.
    assert search("needle", ".coderoom/output-1.txt") == ".coderoom/output-1.txt:2: needle(1)"
    assert search("nothing of it") == "[Nothing in . has 'nothing of it'.]"


def test_a_text_is_replaced(folder: Path) -> None:
    assert "     5|     return width * height" in edit_file("box.py", "width + height", "width * height")
    assert (folder / "box.py").read_text() == CODE.replace("+", "*")


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ("return", "2 times, at the lines 5, 9"),
        ("def area(width, height):\n  return width + height", "other white space:\n     4| def area(width, height):"),
        ("    return width - height", "The lines most like it:\n     4| def area(width, height):\n     5|     return"),
        ("something else altogether", "nor anything like it"),
    ],
)
def test_a_text_that_is_not_there_once_is_refused_with_what_is_there(folder: Path, old: str, told: str) -> None:
    assert told in refused(edit_file, "box.py", old, "x")


def test_ends_of_lines_and_other_bytes_stay(folder: Path) -> None:
    (folder / "w.txt").write_bytes(b"one\r\ntw\xff\r\nthree")
    edit_file("w.txt", "one\n", "1\n1.5\n")
    apply_diff("--- a/w.txt\n+++ b/w.txt\n@@\n 1.5\n-tw\udcff\n+2\n three\n")
    assert (folder / "w.txt").read_bytes() == b"1\r\n1.5\r\n2\r\nthree\r\n"


def test_a_diff_with_wrong_numbers_is_applied_where_it_fits(folder: Path) -> None:
    diff = (
        "Here it is:\n--- box.py\n+++ box.py\n@@ -40,9 +41,9 @@ class Box:\n def area(width, height):\n"
        "-    return width + height\n+    return width * height\n\n"
        "--- /dev/null\n+++ b/new/more.py\n@@ -0,0 +1 @@\n+x = 1\n"
    )
    assert apply_diff(diff).splitlines() == ["box.py: +1 -1", "new/more.py: +1 -0"]
    assert (folder / "box.py").read_text() == CODE.replace("+", "*")
    assert (folder / "new/more.py").read_text() == "x = 1\n"


def test_a_diff_is_applied_as_a_whole_or_not_at_all(folder: Path) -> None:
    good = "--- a/box.py\n+++ b/box.py\n@@ -1 +1 @@\n-import os\n+import sys\n"
    bad = "@@ -4,2 +4,2 @@\n def area(width, height):\n-    return width * height\n+    pass\n"
    told = refused(apply_diff, good + bad)
    assert "part 2 of 2" in told
    assert "     5|     return width + height" in told
    assert "no file lost.py" in refused(apply_diff, good + "--- a/lost.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n")
    assert "there already" in refused(apply_diff, good + "--- /dev/null\n+++ b/box.py\n@@ -0,0 +1 @@\n+x\n")
    assert "no diff here" in refused(apply_diff, "Nothing to do.")


LINES = ["", "a", "  x = 1", "def f():", "-- y", "++ z", "\tq", " ", "--- a", "+++ b", "@@ x", "é\udc80"]


def test_what_git_diff_writes_is_applied_as_git_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=tmp_path / "git", check=True, capture_output=True)
        return done.stdout.decode("utf-8", "surrogateescape")

    def written() -> bytes:
        end = chance.choice(["\n", "\r\n"])
        return end.join(chance.choices(LINES, k=chance.choice([2, 9, 60]))).encode("utf-8", "surrogateescape") + b"\n"

    def changed(data: bytes) -> bytes:
        lines = data.split(b"\n")
        del lines[chance.randrange(len(lines)) :: 17]
        lines.insert(chance.randrange(len(lines) + 1), b"new")
        return b"\n".join(lines)

    for number in range(8):
        before, after = (tmp_path / f"{name}{number}" for name in ("before", "after"))
        before.mkdir()
        for name in ("x.py", "a b.txt", "ä.txt", "gone.py"):
            (before / name).write_bytes(written())
        shutil.copytree(before, after)
        for name in ("x.py", "a b.txt"):
            (after / name).write_bytes(changed((after / name).read_bytes()))
        (after / "ä.txt").rename(after / "moved.txt")
        (after / "gone.py").unlink()
        (after / "made.sh").write_bytes(written())
        (after / "made.sh").chmod(0o755)
        shutil.copytree(before, tmp_path / "git")
        git("init", "-q")
        git("add", "-A")
        git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "before")
        shutil.copytree(after, tmp_path / "next")
        shutil.move(tmp_path / "git/.git", tmp_path / "next/.git")
        shutil.rmtree(tmp_path / "git")
        (tmp_path / "next").rename(tmp_path / "git")
        git("add", "-A")
        diff = git("diff", "--cached", "-M")
        shutil.rmtree(tmp_path / "git")
        monkeypatch.chdir(before)
        apply_diff(diff)
        assert contents(before) == contents(after), diff


def contents(folder: Path) -> dict[str, tuple[bytes, bool]]:
    return {path.name: (path.read_bytes(), bool(path.stat().st_mode & 0o100)) for path in folder.iterdir()}

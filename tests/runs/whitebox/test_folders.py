"""Two states of a repository as folders: what differs, and how one becomes the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.runs.folders import apply_patch, copy_repository, differing, is_cache, patch_between, take


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """A repository and a copy of it that was changed."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one / "src/old", one / ".git", one / "__pycache__"):
        folder.mkdir(parents=True)
    (one / ".git/HEAD").write_text("ref")
    (one / "__pycache__/a.pyc").write_bytes(b"\0")
    (one / "src/same.py").write_text("same = 1\n")
    (one / "src/changed.py").write_text("a\n")
    (one / "src/old/gone.py").write_text("gone\n")
    (one / "link").symlink_to("src/same.py")
    copy_repository(one, other)
    assert sorted(path.name for path in other.iterdir()) == ["link", "src"]
    (other / "src/same.py").write_text("same = 1\n")  # Written, but the same.
    (other / "src/changed.py").write_text("b\n")
    (other / "src/changed.py").chmod(0o755)
    (other / "src/old/gone.py").unlink()
    (other / "src/old").rmdir()
    (other / "link").unlink()
    (other / "link").symlink_to("src/changed.py")
    (other / "new").mkdir()
    (other / "new/made.py").write_text("made\n")
    return one, other


DIFFERING = {"link": "changed", "new/made.py": "added", "src/changed.py": "changed", "src/old/gone.py": "deleted"}


def test_files_and_links_are_taken_over(sides: tuple[Path, Path]) -> None:
    one, other = sides
    assert differing(one, other) == DIFFERING
    take([*DIFFERING], other, one)
    assert differing(one, other) == {}
    assert (one / "link").readlink() == Path("src/changed.py")
    assert (one / "src/changed.py").stat().st_mode & 0o777 == 0o755
    assert not (one / "src/old").exists()  # It is empty.
    assert (one / "src/same.py").exists()


def test_a_patch_has_the_named_paths_and_applies_once(sides: tuple[Path, Path], tmp_path: Path) -> None:
    one, other = sides
    patch = tmp_path / "patch"
    patch.write_bytes(patch_between(one, other, [path for path in DIFFERING if path != "link"], "sha1"))
    apply_patch(patch, one)
    assert differing(one, other) == {"link": "changed"}
    with pytest.raises(RequestError, match="does not apply"):
        apply_patch(patch, one)


def test_caches_are_known_in_any_folder() -> None:
    assert [is_cache(path) for path in ("a/__pycache__/b.pyc", ".ruff_cache/x", "a/cache.py")] == [True, True, False]

"""The pictures of docs/studio.md are those that the browser's test takes, and small."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image

from tests.support.commands import ROOT

PICTURES = ROOT / "docs" / "studio"
LARGEST = 150_000


def test_every_picture_that_is_shown_is_one_that_is_taken() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (ROOT / "docs" / "studio.md").read_text())
    taken = re.findall(r'await picture\(page, "(\w+)"\)', Path(__file__).with_name("test_browser.py").read_text())
    assert shown
    assert sorted(shown) == sorted(f"studio/{name}.png" for name in taken)
    assert sorted(path.name for path in PICTURES.iterdir()) == sorted(f"{name}.png" for name in taken)


def test_the_pictures_are_small() -> None:
    for path in PICTURES.iterdir():
        assert path.stat().st_size <= LARGEST, path.name
        with Image.open(path) as picture:
            assert (picture.format, picture.width) == ("PNG", 1280), path.name

"""Keys in files of variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.models.keys import set_from_file


def test_a_file_sets_what_has_no_value_yet(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("# Keys\nONE_KEY='new one'\nexport TWO_KEY=new\nBLANK=new\nEMPTY=\nOVER=new\n")
    env = {"TWO_KEY": "old", "BLANK": " ", "EMPTY": "old", "OVER": "old"}
    set_from_file(file, env, over=["OVER", "EMPTY"])
    assert env == {"ONE_KEY": "new one", "TWO_KEY": "old", "BLANK": "new", "EMPTY": "old", "OVER": "new"}
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        set_from_file(tmp_path / "none", env)

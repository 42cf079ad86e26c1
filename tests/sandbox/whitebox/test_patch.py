"""Unified diffs of any two contents, as git reads them."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coderoom.sandbox.overlay.myers import Effort
from coderoom.sandbox.overlay.patch import Side, file_patch

LINES = [b"a\n", b"b\n", b"\n", b"c\r\n", "ä\u2028\x0c\n".encode(), b"+x\n", b"@@\n"]
lines = st.lists(st.sampled_from(LINES), max_size=30)
texts = st.one_of(lines.map(b"".join), lines.map(lambda found: b"".join(found).rstrip(b"\n")), st.binary(max_size=99))


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(texts, texts), min_size=5, max_size=6))
def test_git_takes_every_patch(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[bytes, bytes]]) -> None:
    folder = tmp_path_factory.mktemp("patch")
    patch = ""
    for number, (old, new) in enumerate(pairs):
        name = f"{number}"
        (folder / name).write_bytes(old)
        if old != new:
            # Little effort: what differs is replaced as a whole.
            patch += file_patch(Side(name, "100644", old), Side(name, "100644", new), Effort(number * 10))
    if patch:
        subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, input=patch.encode(), check=True)
    assert [(folder / str(number)).read_bytes() for number in range(len(pairs))] == [new for _, new in pairs]

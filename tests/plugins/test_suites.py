"""The public suites need no plugin of pytest, and notice what is not as they want it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import environment

pytestmark = pytest.mark.slow

SUITE = """
from coderoom.testing import WallConformance

class TestOpen(WallConformance):
    arguments = {"wall": "none"}
"""


def test_a_suite_runs_alone_and_notices_a_wall_that_lets_code_out(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(SUITE)
    plugins = ["asyncio", "xdist", "cacheprovider"]
    chosen = "the_host or exit_codes"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(f"-pno:{each}" for each in plugins), "-k", chosen, "test_own.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment(),
    )
    assert set(re.findall(r"FAILED test_own.py::TestOpen::(\S+)", done.stdout)) >= {
        "test_files_of_the_host_can_be_neither_read_nor_written",
        "test_the_network_of_the_host_cannot_be_reached",
        "test_processes_of_the_host_cannot_be_ended",
    }, done.stdout
    assert "assert 'secret' is None" in done.stdout  # Values are shown, as in tests of one's own.

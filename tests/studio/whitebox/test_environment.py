"""How an installation of Studio ends that pip carries out in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.studio.processes import below
from tests.studio.test_studio_environment import cache, fake
from tests.support.commands import environment
from tests.support.studio import alive, wait_for

pytestmark = pytest.mark.studio

__all__ = ["cache"]

MAKES = """
import sys
from coderoom.studio import prepare_environment
from coderoom.studio.start import _signals_interrupt
with _signals_interrupt():
    prepare_environment(lambda words, detail="": None, python=sys.argv[1])
"""


def test_a_signal_ends_the_pip_that_pip_starts_for_another_interpreter(cache: Path, tmp_path: Path) -> None:
    python = fake(tmp_path / "python3", f'exec {sys.executable} "$@"')
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        process = subprocess.Popen(
            [sys.executable, "-c", MAKES, python],
            env=environment({"PIP_INDEX_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/simple"}),
            stderr=subprocess.DEVNULL,
        )
        started: dict[int, str] = {}
        try:
            asking, _ = silent.accept()
            with asking:
                started = below(process.pid)
                assert len(started) > 1
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) != 0
                wait_for(lambda: not any(map(alive, started)), 10)
        finally:
            for pid in [process.pid, *started]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

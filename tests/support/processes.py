"""Runs a script in many processes that import its modules only once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_OFTEN = """
import os as _os
for _number in range({times}):
    _child = _os.fork()
    if not _child:
        for _file in (1, 2):
            _os.dup2(_os.open(f"said-{{_file}}", _os.O_WRONLY | _os.O_CREAT | _os.O_APPEND), _file)
        break
    assert _os.waitpid(_child, 0)[1] == 0, f"process {{_number}} failed"
else:
    sys.exit()
"""


def run_often(imports: str, body: str, times: int, folder: Path, *arguments: str, env: Mapping[str, str]) -> str:
    """Run a script several times, each in a process of its own that begins and ends as usual; none may complain.

    Args:
        imports: The beginning of the script, which only imports and defines; it has to import `sys`.
        body: The rest.
        times: How often. A single process is a new one; several are forks after the imports.
        folder: The current folder of the processes.
        arguments: Their arguments.
        env: Their environment.

    Returns:
        What they printed.
    """
    script = folder / "script.py"
    script.write_text(imports + (_OFTEN.format(times=times) if times > 1 else "") + body)
    command = [sys.executable, "-W", "error", str(script), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=dict(env), capture_output=True, text=True, timeout=60 * times, check=False
    )
    said = [folder / "said-1", folder / "said-2"]
    printed, complaints = ((path.read_text() if path.exists() else "") for path in said)
    complaints += done.stderr
    assert (done.returncode, complaints) == (0, ""), complaints
    return done.stdout + printed

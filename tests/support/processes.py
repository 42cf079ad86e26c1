"""Runs a script in many processes that import its modules only once; which processes live below another."""

from __future__ import annotations

import contextlib
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


def family(pid: int) -> dict[int, str]:
    """The processes that live below one, each with the time of its start."""
    facts: dict[int, list[str]] = {}
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit():
                facts[int(path.name)] = (path / "stat").read_text().rpartition(")")[2].split()
    found: dict[int, str] = {}
    left = {pid}
    while left:
        left = {each for each, told in facts.items() if int(told[1]) in left and told[0] != "Z"}
        found.update({each: facts[each][19] for each in left})
    return found


def is_there(pid: int, began: str) -> bool:
    """Whether a process that began then still lives."""
    with contextlib.suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return told[19] == began and told[0] != "Z"
    return False

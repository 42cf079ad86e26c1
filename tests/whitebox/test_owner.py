"""Who something belongs to, and whether that one is dead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coderoom._util.processes import is_orphan, owner_mark

_SAY = "from coderoom._util.processes import owner_mark; print(owner_mark(), flush=True); input()"


def test_this_process_lives() -> None:
    assert owner_mark() == owner_mark()
    assert not is_orphan(owner_mark())


def test_another_process_until_it_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", _SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        owner = it.stdout.readline().strip()
        assert not is_orphan(owner)
        it.kill()
        # Dead, though nobody has asked how it ended.
        while "Z" not in Path(f"/proc/{it.pid}/stat").read_text().rpartition(")")[2]:
            pass
        assert is_orphan(owner)
    assert is_orphan(owner)


def test_a_number_that_was_given_again() -> None:
    boot, namespace, pid, start = owner_mark().split()
    assert is_orphan(f"{boot} {namespace} {pid} {int(start) - 1}")


def test_a_machine_that_was_started_again() -> None:
    _, namespace, pid, start = owner_mark().split()
    assert is_orphan(f"another-boot {namespace} {pid} {start}")


def test_nothing_is_known_of_other_namespaces() -> None:
    boot, _, pid, _ = owner_mark().split()
    assert not is_orphan(f"{boot} 1 {pid} 1")


@pytest.mark.parametrize("owner", ["", "1", "a b c d e", "boot namespace not-a-number start"])
def test_what_was_never_ours_is_left_alone(owner: str) -> None:
    assert not is_orphan(owner)

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coderoom.executors import launch
from tests.executors.helpers import DEAF, TREE, all_gone, processes, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher's promises are for Linux")


class Launched:
    """The launcher with a program under it, without any executor around it."""

    def __init__(self, folder: Path, code: str, **settings: Any) -> None:
        self.control = folder / "control"
        self.work = folder / "work"
        self.control.mkdir()
        self.work.mkdir()
        orders = {"host": os.getpid(), "deadline": 20, "cwd": str(self.work), **settings}
        (self.control / "settings.json").write_text(json.dumps(orders))
        command = [sys.executable, "-I", "-S", launch.__file__, str(self.control), sys.executable, "-u", "-c", code]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    async def end(self) -> tuple[dict[str, Any], str]:
        """Wait for its end; return its report and its output."""
        output, problems = await asyncio.to_thread(self.process.communicate, timeout=30)
        assert problems == b""
        await all_gone(self.work)
        report = json.loads((self.control / "report.json").read_text())
        assert self.process.returncode == report["exit_code"]
        return report, output.decode()

    async def ready(self) -> None:
        await until((self.work / "ready").exists)


async def test_output_and_exit_code_are_passed_on(tmp_path: Path) -> None:
    report, output = await Launched(tmp_path, "print('out'); raise SystemExit(7)").end()
    assert (report["outcome"], report["exit_code"], report["truncated"]) == ("error", 7, False)
    assert output == "out\n"
    assert report["total_bytes"] == report["total_chars"] == 4


async def test_a_signal_that_ends_the_program_becomes_an_exit_code(tmp_path: Path) -> None:
    report, _ = await Launched(tmp_path, "import os; os.kill(os.getpid(), 9)").end()
    assert (report["outcome"], report["exit_code"]) == ("error", 137)


async def test_printed_text_cannot_forge_the_outcome(tmp_path: Path) -> None:
    forged = json.dumps({"outcome": "ok", "exit_code": 0})
    report, output = await Launched(tmp_path, f"print({forged!r}); print('Timeout'); raise SystemExit(124)").end()
    assert (report["outcome"], report["exit_code"]) == ("error", 124)
    assert output.endswith("Timeout\n")


async def test_the_order_of_both_outputs_is_kept(tmp_path: Path) -> None:
    code = "import sys\nfor n in range(50): print(n, file=(sys.stdout, sys.stderr)[n % 2])"
    _, output = await Launched(tmp_path, code).end()
    assert output.split() == [str(number) for number in range(50)]


async def test_a_program_that_starts_others_is_ended_with_them_at_the_deadline(tmp_path: Path) -> None:
    report, output = await Launched(tmp_path, TREE + "print('on')\ntime.sleep(300)", deadline=1).end()
    assert (report["outcome"], report["exit_code"]) == ("timeout", 124)
    assert output == "on\n"


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    report, output = await Launched(tmp_path, TREE + "print('done')").end()
    assert (report["outcome"], output) == ("ok", "done\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_all_even_what_is_deaf_to_it(tmp_path: Path, number: signal.Signals) -> None:
    launched = Launched(tmp_path, TREE.replace("'ready'", "'soon'") + DEAF)
    await launched.ready()
    assert processes(launched.work)
    launched.process.send_signal(number)
    report, _ = await launched.end()
    assert (report["outcome"], report["exit_code"]) == ("cancelled", 125)
    assert (launched.control / "whole.txt").read_text() == "begun\n"


async def test_a_program_that_ends_its_own_group_does_not_end_the_launcher(tmp_path: Path) -> None:
    report, _ = await Launched(tmp_path, TREE + "os.killpg(0, 9)").end()
    assert (report["outcome"], report["exit_code"]) == ("error", 137)


async def test_a_fork_bomb_is_ended(tmp_path: Path) -> None:
    code = "import os, time\nopen('ready', 'w').close()\nfor _ in range(7): os.fork()\ntime.sleep(300)"
    report, _ = await Launched(tmp_path, code, deadline=1).end()
    assert report["outcome"] == "timeout"


async def test_a_killed_launcher_takes_the_program_with_it(tmp_path: Path) -> None:
    launched = Launched(tmp_path, DEAF)
    await launched.ready()
    launched.process.kill()
    await asyncio.to_thread(launched.process.communicate)
    await all_gone(launched.work)


async def test_the_program_gets_pipes_that_break_and_no_input(tmp_path: Path) -> None:
    code = """
import signal, sys
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, sys.stdin.read() == "", flush=True)
import subprocess
print(subprocess.run("yes | head -n 1; echo ${PIPESTATUS[0]}", shell=True, executable="/bin/bash").returncode)
"""
    _, output = await Launched(tmp_path, code).end()
    assert output.split() == ["True", "True", "y", "141", "0"]


async def test_long_output_is_bounded_and_the_file_has_it_all(tmp_path: Path) -> None:
    code = "for n in range(20000): print(f'line {n:06}')"
    launched = Launched(tmp_path, code, keep=10_000)
    report, output = await launched.end()
    assert report["truncated"]
    assert report["total_bytes"] == 20_000 * 12
    assert len(output) <= 10_100
    lines = output.splitlines()
    assert (lines[0], lines[-1]) == ("line 000000", "line 019999")
    assert sum("left out" in line for line in lines) == 1
    assert all(len(line) == 11 for line in lines if "left out" not in line)
    assert (launched.control / "whole.txt").stat().st_size == 20_000 * 12


async def test_the_file_is_bounded_as_well(tmp_path: Path) -> None:
    launched = Launched(tmp_path, "print('x' * 999_999)", keep=1000, whole=5000)
    report, _ = await launched.end()
    assert report["total_bytes"] == 1_000_000
    assert (launched.control / "whole.txt").stat().st_size == 5000


async def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.buffer.write(b'a\\xff\\xfe\\x00b\\xc3\\xa9')"
    report, output = await Launched(tmp_path, code).end()
    assert output == "a\ufffd\ufffd\0bé"
    assert report["total_chars"] == 6


async def test_names_and_prefixes_choose_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEPT", "LC_KEPT", "LOST"):
        monkeypatch.setenv(f"{name}_VARIABLE", name)
    settings: dict[str, Any] = {"names": ["KEPT_VARIABLE"], "prefixes": ["LC_KEPT"], "set": {"GIVEN": "1"}}
    _, output = await Launched(tmp_path, "import os; print(sorted(os.environ))", **settings).end()
    names = set(eval(output))
    assert {"KEPT_VARIABLE", "LC_KEPT_VARIABLE", "GIVEN"} <= names
    assert not names & {"LOST_VARIABLE", "HOME", "PATH"}


async def test_a_program_that_cannot_be_started_is_told_as_our_failure(tmp_path: Path) -> None:
    report, output = await Launched(tmp_path, "", command=[str(tmp_path / "nothing")]).end()
    assert report["outcome"] == "unavailable"
    assert "nothing" in report["message"]
    assert output == ""


async def test_a_host_that_is_gone_at_the_start_ends_the_program(tmp_path: Path) -> None:
    launched = Launched(tmp_path, DEAF, host=1 if os.getpid() != 1 else 2)
    await asyncio.to_thread(launched.process.communicate, timeout=30)
    assert launched.process.returncode == 125
    await all_gone(launched.work)

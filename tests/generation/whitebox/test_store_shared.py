from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.generation import (
    Reply,
    SolutionCache,
)

from .stored import names_in, only_file, solution, started

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@pytest.fixture
def cache(tmp_path: Path) -> SolutionCache:
    return SolutionCache(tmp_path / "cache")


WORK = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
from coderoom.generation import Reply, SolutionCache
from tests.generation.whitebox.stored import solution
folder, me = sys.argv[1:]
cache = SolutionCache(folder)
journal, shared = cache.journal(me), cache.journal("shared")
for number in range(25):
    cache.put(f"{me}-{number}", solution(f"{me} {number}"))
    cache.put("same", solution(f"{me} {number}"))
    journal.add("r", Reply(f"{me} {number}"))
    if shared.take("r") is None:
        shared.add("r", Reply(f"{me} {number}"))
    assert cache.get(f"{me}-{number}") == solution(f"{me} {number}")
    assert cache.get("same") is not None
"""

ADD = """
import sys
from coderoom.generation import Reply, SolutionCache
journal = SolutionCache(sys.argv[1]).journal("k")
number = 0
while True:
    journal.add("r", Reply(f"{number} " + "#" * 20_000))
    print(number, flush=True)
    number += 1
"""


class TestProcesses:
    @pytest.mark.slow
    def test_many_at_once(self, cache: SolutionCache) -> None:
        processes = [started(WORK, str(cache.path), str(me)) for me in range(8)]
        said = [process.communicate()[0] for process in processes]
        assert said == [""] * 8
        assert [process.returncode for process in processes] == [0] * 8
        for me in range(8):
            journal = cache.journal(str(me))
            assert [journal.take("r") for _ in range(26)] == [*(Reply(f"{me} {n}") for n in range(25)), None]
            assert all(cache.get(f"{me}-{number}") == solution(f"{me} {number}") for number in range(25))
        shared = cache.journal("shared")
        assert None not in [shared.take("r") for _ in range(25)]
        assert shared.take("r") is None
        assert cache.stats().entries == 8 * 25 + 1

    def test_threads(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        journal = cache.journal("k")

        def work(me: int) -> None:
            for number in range(20):
                journal.add("r", Reply(f"{me} {number}"))
                cache.put(f"{me}", solution(f"{number}"))

        threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        again = cache.journal("k")
        found = [again.take("r") for _ in range(161)]
        assert {reply.text for reply in found if reply} == {f"{me} {n}" for me in range(8) for n in range(20)}
        assert found[160] is None
        assert all(cache.get(f"{me}") == solution("19") for me in range(8))
        assert not caplog.records

    @pytest.mark.slow
    def test_what_was_acknowledged_outlives_a_kill(
        self, cache: SolutionCache, caplog: pytest.LogCaptureFixture
    ) -> None:
        for turn in range(6):
            with started(ADD, str(cache.path)) as process:
                assert process.stdout is not None
                acknowledged = [int(process.stdout.readline()) for _ in range(5 + 7 * turn)][-1]
                time.sleep(0.0007 * turn)
                process.send_signal(signal.SIGKILL)
                acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
            journal = cache.journal("k")
            for number in range(acknowledged + 1):
                reply = journal.take("r")
                assert reply is not None
                assert reply.text.startswith(f"{number} #")
            journal.forget()
        assert not caplog.records


class TestFormerVersions:
    def test_a_database_is_ignored_and_removed(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        cache.path.mkdir()
        for end in ("", ".lock", "-journal", ".damaged-20260101T000000Z"):
            (cache.path / f"solutions.sqlite3{end}").write_bytes(b"SQLite format 3")
        assert cache.get("k") is None
        cache.put("k", solution())
        assert names_in(cache.path) == [only_file(cache).name]
        assert not caplog.records

    def test_files_of_others_stay(self, cache: SolutionCache) -> None:
        cache.path.mkdir()
        (cache.path / "solutions").mkdir()
        (cache.path / "solution-mine.json").write_text("{}")
        cache.put("k", solution())
        cache.journal("k").add("r", Reply("x"))
        assert cache.clear() == 1
        assert names_in(cache.path) == ["solution-mine.json", "solutions"]


def useless(cache: SolutionCache, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """See to it that a cache that cannot be used does no harm, and says why, once."""
    for _ in range(2):
        cache.put("k", solution())
        assert cache.get("k") is None
        journal = cache.journal("k")
        journal.add("r", Reply("x"))
        assert cache.journal("k").take("r") is None
        journal.forget()
        assert cache.stats().entries == 0
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert why in record.message


class TestPlace:
    def test_a_file_is_no_folder(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "cache").touch()
        useless(SolutionCache(tmp_path / "cache"), caplog, "exists")

    def test_a_folder_that_cannot_be_made(self, caplog: pytest.LogCaptureFixture) -> None:
        useless(SolutionCache("/proc/none"), caplog, "/proc/none")

    def test_a_cache_that_cannot_be_cleared(self, tmp_path: Path) -> None:
        (tmp_path / "cache").touch()
        with pytest.raises(RequestError, match="cannot be cleared"):
            SolutionCache(tmp_path / "cache").clear()

    def test_a_folder_that_everybody_may_write_to(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        cache.path.mkdir()
        cache.path.chmod(0o1777)
        useless(cache, caplog, "every user may write")

    def test_a_link_to_ones_own_folder(self, tmp_path: Path) -> None:
        SolutionCache(tmp_path / "real").put("k", solution())
        (tmp_path / "folder").symlink_to("real")
        assert SolutionCache(tmp_path / "folder").get("k") == solution()

    def test_a_link_that_leads_to_itself(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        cache.path.symlink_to("cache")
        useless(cache, caplog, "cache")

    @AS_ROOT
    def test_what_belongs_to_somebody_else(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        cache.put("k", solution())
        path = only_file(cache)
        before = path.read_bytes()
        os.chown(cache.path, 12345, -1)
        useless(cache, caplog, "belongs to another user (12345)")
        assert path.read_bytes() == before

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coderoom.errors import RequestError
from coderoom.generation import (
    Reply,
    SolutionCache,
)
from coderoom.generation.database import _set_aside

from .stored import asides, change, names_in, solution, started

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
        processes = [started(WORK, str(cache.path.parent), str(me)) for me in range(8)]
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
            with started(ADD, str(cache.path.parent)) as process:
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
        assert not asides(cache)

    @pytest.mark.slow
    def test_many_find_the_same_damage(self, cache: SolutionCache) -> None:
        cache.path.parent.mkdir()
        cache.path.write_bytes(b"rubbish" * 1000)
        processes = [started(WORK, str(cache.path.parent), str(me)) for me in range(4)]
        said = "".join(process.communicate()[0] for process in processes)
        assert [process.returncode for process in processes] == [0] * 4
        assert said.count("cannot be used") == said.count("\n") == 1
        assert cache.stats().entries == 4 * 25 + 1
        assert len(asides(cache)) == 1


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a database with something of everything."""
    cache = SolutionCache(tmp_path_factory.mktemp("sound"))
    for number in range(6):
        cache.put(f"k{number}", solution(f"{number}", code="#" * 2_000 * number + "x"))
        cache.journal("k").add("r", Reply(f"{number}" * 3_000))
    cache.remove("k5")
    return cache.path.read_bytes()


def lives(data: bytes) -> None:
    """See to it that a cache gives back nothing wrong, whatever its file says, and goes on from there."""
    with tempfile.TemporaryDirectory() as folder:
        cache = SolutionCache(folder)
        cache.path.write_bytes(data)
        for number in range(6):
            assert cache.get(f"k{number}") in (None, solution(f"{number}", code="#" * 2_000 * number + "x"))
        journal = cache.journal("k")
        for number in range(6):
            if journal.take("r") not in (None, Reply(f"{number}" * 3_000)):
                raise AssertionError
        cache.stats()
        cache.put("new", solution("new"))
        cache.journal("new").add("r", Reply("new"))
        assert cache.get("new") == solution("new")
        assert cache.journal("new").take("r") == Reply("new")
        cache.clear()
        assert (cache.stats().entries, cache.stats().bytes) == (0, 0)


class TestDamage:
    @pytest.mark.parametrize(
        "data", [b"rubbish", b"rubbish" * 1000, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 999]
    )
    def test_what_is_no_database_is_set_aside(
        self, cache: SolutionCache, caplog: pytest.LogCaptureFixture, data: bytes
    ) -> None:
        cache.path.parent.mkdir()
        cache.path.write_bytes(data)
        assert cache.get("k") is None
        cache.put("k", solution())
        assert cache.get("k") == solution()
        (record,) = caplog.records
        (aside,) = asides(cache)
        assert aside.read_bytes() == data
        assert aside.name in record.message

    def test_an_empty_file_is_an_empty_cache(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        cache.path.parent.mkdir()
        cache.path.touch()
        assert cache.get("k") is None
        cache.put("k", solution())
        assert cache.get("k") == solution()
        assert not caplog.records

    @pytest.mark.parametrize(
        ("statement", "why"),
        [
            ("PRAGMA user_version = 2", "its version is 2"),
            ("PRAGMA application_id = 7", "not a database of this package"),
            ("ALTER TABLE kept RENAME TO other", "no such table"),
            ("ALTER TABLE kept DROP COLUMN hits", "hits"),
        ],
    )
    def test_what_is_of_another_kind_is_set_aside(
        self, cache: SolutionCache, caplog: pytest.LogCaptureFixture, statement: str, why: str
    ) -> None:
        cache.put("k", solution())
        change(cache, statement)
        assert cache.get("k") is None
        assert why in caplog.text
        cache.put("k", solution())
        assert cache.get("k") == solution()
        assert len(asides(cache)) == 1

    def test_two_damages_in_the_same_second(self, cache: SolutionCache) -> None:
        cache.path.parent.mkdir()
        for number in range(3):
            cache.path.write_bytes(b"rubbish %d" % number)
            assert cache.get("k") is None
        assert {path.read_bytes() for path in asides(cache)} == {b"rubbish %d" % number for number in range(3)}

    def test_the_journal_of_a_damaged_file_goes_with_it(self, cache: SolutionCache) -> None:
        cache.path.parent.mkdir()
        cache.path.write_bytes(b"rubbish" * 1000)
        cache.path.with_name("solutions.sqlite3-journal").write_bytes(b"more rubbish")
        _set_aside(cache.path, "rubbish")
        assert [path.name.endswith("-journal") for path in asides(cache)] == [False, True]
        assert not cache.path.exists()

    def test_a_damaged_schema_that_is_no_text(self, sound: bytes) -> None:
        lives(sound.replace(b"sqlite_autoindex", b"\xff\x80lite_autoindex"))

    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_bytes_that_changed(self, sound: bytes, data: st.DataObject) -> None:
        torn = bytearray(sound)
        for _ in range(data.draw(st.integers(1, 20))):
            torn[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
        lives(bytes(torn))

    @pytest.mark.slow
    def test_every_byte_of_the_head(self, sound: bytes) -> None:
        for place in range(100):
            lives(sound[:place] + bytes([sound[place] ^ 0x03]) + sound[place + 1 :])

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_files_that_end_too_early(self, sound: bytes, data: st.DataObject) -> None:
        lives(sound[: data.draw(st.integers(0, len(sound) - 1))])


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
    (record,) = caplog.records
    assert why in record.message


class TestPlace:
    def test_a_file_is_no_folder(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "cache").touch()
        useless(SolutionCache(tmp_path / "cache"), caplog, "exists")

    def test_a_folder_that_cannot_be_made(self, caplog: pytest.LogCaptureFixture) -> None:
        useless(SolutionCache("/proc/none"), caplog, "/proc/none")

    def test_a_folder_is_no_database(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        cache.path.mkdir(parents=True)
        useless(cache, caplog, "not a regular file")
        with pytest.raises(RequestError, match="cannot be cleared"):
            cache.clear()

    def test_a_folder_that_everybody_may_write_to(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        cache.path.parent.mkdir()
        cache.path.parent.chmod(0o1777)
        useless(cache, caplog, "every user may write")

    def test_links_to_what_is_ones_own(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        SolutionCache(tmp_path / "real").put("k", solution())
        (tmp_path / "folder").symlink_to("real")
        (tmp_path / "file").mkdir()
        (tmp_path / "file" / "solutions.sqlite3").symlink_to("../real/solutions.sqlite3")
        for name in ("folder", "file"):
            assert SolutionCache(tmp_path / name).get("k") == solution()

    @pytest.mark.parametrize("target", ["nothing", "solutions.sqlite3"])
    def test_links_that_lead_nowhere(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture, target: str) -> None:
        cache.path.parent.mkdir()
        cache.path.symlink_to(target)
        useless(cache, caplog, "solutions.sqlite3")
        assert names_in(cache.path.parent) == ["solutions.sqlite3"]

    @AS_ROOT
    @pytest.mark.parametrize("which", ["the file", "the folder", "the file behind a link", "the folder behind a link"])
    def test_what_belongs_to_somebody_else(self, tmp_path: Path, caplog: pytest.LogCaptureFixture, which: str) -> None:
        real = SolutionCache(tmp_path / "real")
        real.put("k", solution())
        before = real.path.read_bytes()
        os.chown(real.path if "file" in which else real.path.parent, 12345, -1)
        cache = SolutionCache(tmp_path / "cache") if "link" in which else real
        if "link" in which:
            cache.path.parent.mkdir()
            cache.path.symlink_to(real.path)
        useless(cache, caplog, "belongs to another user (12345)")
        assert real.path.read_bytes() == before

    def test_a_cache_that_is_locked_for_long_is_as_if_empty(
        self, cache: SolutionCache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("coderoom.generation.database._PATIENCE", 0.05)
        cache.put("k", solution())
        connection = sqlite3.connect(cache.path, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        useless(cache, caplog, "database is locked")
        connection.close()
        assert cache.get("k") == solution()

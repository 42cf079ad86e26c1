"""The cache of solutions and replies, in the journal's database."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coderoom.errors import JournalError, RequestError
from coderoom.generation import (
    FunctionReport,
    Reply,
    Solution,
    SolutionCache,
    StopReason,
    TestResult,
    cache_key,
    changed,
)

from ..support.commands import ROOT
from .examples import frozen, in_database, spec, test_of

TESTS = frozen("f", test_of("a", inputs={"x": 1}, expected_output=1), test_of("b", expected_output=[2.5, "é"]))
OTHER = frozen("f", test_of("a", inputs={"x": 1}, expected_output=2), test_of("b", expected_output=[2.5, "é"]))
REPORT = FunctionReport(function="f", passed=True, tests=2, tests_passed=2, attempts=(), stop_reason=StopReason.PASSED)
FAILED = tuple(TestResult(function="f", test=name, passed=name == "a") for name in "ab")


def solution(instruction: str = "double it", code: str = "def f(x):\n    return x\n", **more: Any) -> Solution:
    return Solution(
        **{
            "instruction": instruction,
            "function_specs": (spec("f"),),
            "implementations": {"f": code},
            "tests": TESTS.tests,
            "test_results": tuple(TestResult(function="f", test=name, passed=True) for name in "ab"),
            "all_tests_passed": True,
            "functions": (REPORT,),
            "tests_hash": TESTS.hash,
            "stop_reason": StopReason.PASSED,
            **more,
        }
    )


@pytest.fixture
def cache(tmp_path: Path) -> SolutionCache:
    return SolutionCache(tmp_path)


def age(cache: SolutionCache, key: str, seconds: float) -> None:
    """Let what is stored look as if it was used so many seconds earlier."""
    in_database(cache.path.parent, "UPDATE solutions SET used = used - ? WHERE key = ?", seconds, key)


class TestSolutions:
    def test_a_solution_comes_back_as_it_was(self, cache: SolutionCache) -> None:
        whole = solution("é 😀 \x00 \u2028 \U0010ffff", code="x = '\x00😀'")
        cache.put("k", solution("one"))
        cache.put("k", whole)
        assert cache.get("k") == SolutionCache(cache.path).get("k") == whole
        assert cache.get("other") is None
        assert cache.stats().entries == 1

    def test_halves_of_characters_do_no_harm(self, cache: SolutionCache) -> None:
        halves = "\ud83d\ude00 \ud800 é"
        cache.put("k", solution().model_copy(update={"instruction": halves, "implementations": {"f": halves}}))
        found = cache.get("k")
        assert found is not None
        assert found.instruction == found.implementations["f"] == "😀 \ufffd é"

    def test_what_json_cannot_carry_is_not_kept(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        deep: Any = 1
        for _ in range(300):
            deep = [deep]
        results = (TestResult(function="f", test="a", passed=True, actual_output=deep), solution().test_results[1])
        cache.put("k", solution().model_copy(update={"test_results": results}))
        assert cache.get("k") is None
        assert "was not cached" in caplog.text

    def test_nothing_is_on_disk_before_something_is_kept(self, tmp_path: Path) -> None:
        cache = SolutionCache(tmp_path / "a" / "b")
        assert (cache.get("k"), cache.journal("k").take("r"), cache.nearest("s", [1.0], 0)) == (None, None, None)
        cache.journal("k").forget()
        cache.remove("k")
        assert (cache.clear(), cache.stats().entries, cache.stats().oldest, cache.entries()) == (0, 0, None, [])
        assert list(tmp_path.iterdir()) == []

    def test_things_are_removed(self, cache: SolutionCache) -> None:
        for key in "abc":
            cache.put(key, solution(key))
            cache.journal(key).add("r", Reply(key))
        cache.remove("a")
        cache.journal("b").forget()
        assert [cache.get(key) for key in "abc"] == [None, solution("b"), solution("c")]
        assert [cache.journal(key).take("r") for key in "abc"] == [Reply("a"), None, Reply("c")]
        assert cache.clear() == 2
        assert (cache.get("b"), cache.journal("c").take("r")) == (None, None)

    def test_it_says_what_is_there(self, cache: SolutionCache) -> None:
        cache.put("a", solution())
        age(cache, "a", 60)
        cache.journal("a").add("r", Reply("x" * 1000))
        (entry,) = cache.entries()
        assert (entry.instruction, entry.functions, entry.language) == ("double it", ("f",), "python")
        assert entry.used == cache.stats().oldest
        cache.get("a")
        cache.get("a")
        stats = cache.stats()
        assert (stats.entries, stats.answers, stats.hits, stats.max_bytes) == (1, 1, 2, 100 * 1024 * 1024)
        assert stats.bytes > 1000 + entry.bytes
        assert stats.oldest is not None
        assert stats.newest is not None
        assert entry.used < stats.oldest <= stats.newest

    @pytest.mark.parametrize("secret", ["hunter2-hunter2", "sk-abcdefghijklmnopqrstuvwxyz"])
    def test_what_has_a_secret_is_not_kept(
        self, tmp_path: Path, secret: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("MY_SERVICE_TOKEN", "hunter2-hunter2")
        cache = SolutionCache(tmp_path)
        cache.put("k", solution(code=f"KEY = {secret!r}"))
        cache.journal("k").add("r", Reply(f"KEY = {secret!r}"))
        assert (cache.get("k"), cache.journal("k").take("r")) == (None, None)
        assert [record.getMessage().split()[1] for record in caplog.records] == ["solution", "reply"]
        assert secret not in caplog.text


FORGED: list[Mapping[str, Any]] = [
    {"all_tests_passed": False},
    {"test_results": FAILED},
    {"test_results": FAILED[:1]},
    {"test_results": ()},
    {"tests": OTHER.tests},
    {"tests": {}},
    {"tests_hash": ""},
    {"implementations": {"f": ""}},
    {"implementations": {}},
    {"function_specs": (), "tests": {}, "test_results": ()},
    {"functions": (REPORT.model_copy(update={"passed": False}),)},
    {"functions": (REPORT.model_copy(update={"only_by_changed_tests": True}),)},
]


class TestUnsound:
    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b"null", b'{"instruction": "x"}', b"\xff\x00", b"[" * 100_000, "text", 7]
    )
    def test_what_is_damaged_is_dropped(
        self, cache: SolutionCache, caplog: pytest.LogCaptureFixture, content: Any
    ) -> None:
        cache.put("k", solution())
        in_database(cache.path.parent, "UPDATE solutions SET content = ?", content)
        assert cache.entries() == []
        assert cache.get("k") is cache.get("k") is None
        (record,) = caplog.records
        assert "is damaged and was removed" in record.message
        assert cache.stats().entries == 0

    @pytest.mark.parametrize("update", FORGED, ids=lambda update: "-".join(update))
    def test_what_did_not_pass_is_refused(self, cache: SolutionCache, update: dict[str, Any]) -> None:
        with pytest.raises(RequestError, match="Only a solution that passed"):
            cache.put("k", solution(**update))
        assert not cache.path.exists()

    def test_changes_of_tests_have_to_lead_to_the_tests(self, cache: SolutionCache) -> None:
        new = changed(TESTS, "f", "a", OTHER.tests["f"][0], by="judge", reason="the spec says so")
        good = solution(tests=new.tests, test_changes=new.changes)
        cache.put("k", good)
        assert cache.get("k") == good
        back = (new.changes[0].model_copy(update={"hash_before": "0"}),)
        for wrong in ({"tests": new.tests, "test_changes": back}, {"test_changes": new.changes}):
            with pytest.raises(RequestError, match=r"tests"):
                cache.put("k", solution(**wrong))


def key(**more: Any) -> str:
    told = {"instruction": "do", "model": "m", "prompt_version": "1", "package_version": "2", "options": {"a": [1]}}
    return cache_key(**{**told, **more})


class TestKey:
    def test_it_is_always_the_same(self) -> None:
        options = {"b": {"d": 1, "c": None}, "a": [1, "x"]}
        one, other = key(instruction="caf\u00e9", options=options), key(instruction="cafe\u0301 \n\t", options=options)
        assert one == other == "ddb17289d6032a55c246dbc3e5df333ab23f0a44dd4aa3ec8c6c4e6383830e3b"

    def test_everything_counts(self) -> None:
        names = ["instruction", "model", "prompt_version", "package_version"]
        options: list[Any] = [{}, {"a": 1}, {"a": True}, {"a": "1"}, {"a": None}]
        others = [key(**{name: word}) for name in names for word in ("other", " other")]
        assert len({key(), *others, *(key(options=each) for each in options)}) == 14

    @pytest.mark.parametrize("value", [{1}, object(), float("nan"), b"x", {"x": {1: 2, "y": 3}}])
    def test_options_have_to_be_json(self, value: Any) -> None:
        with pytest.raises(RequestError, match="options="):
            key(options={"a": value})

    @settings(deadline=None)
    @given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
    def test_any_instruction_has_one(self, instruction: str, model: str) -> None:
        assert len(key(instruction=instruction, model=model)) == 64


class TestLimit:
    def test_the_least_recently_used_go_first(self, tmp_path: Path) -> None:
        cache = SolutionCache(tmp_path, max_bytes=100_000)
        for number, name in enumerate("abc"):
            cache.put(name, solution(name, code="#" * 30_000))
            age(cache, name, 60 - number)
        cache.get("a")
        cache.put("d", solution(code="#" * 30_000))
        assert [name for name in "abcd" if cache.get(name)] == ["a", "c", "d"]
        assert cache.stats().bytes <= 100_000
        SolutionCache(cache.path, max_bytes=70_000).put("e", solution())
        assert len([name for name in "acde" if cache.get(name)]) == 3, "a smaller limit holds for what is there"

    def test_replies_and_vectors_count_too(self, tmp_path: Path) -> None:
        cache = SolutionCache(tmp_path, max_bytes=100_000)
        cache.put("old", solution(), scope="s", vector=[0.5] * 2000)
        assert cache.stats().bytes > 16_000
        for number in range(20):
            cache.journal(str(number % 2)).add(str(number), Reply("#" * 10_000))
        assert cache.get("old") is None
        assert cache.stats().answers == 9

    def test_what_is_larger_than_the_limit_is_not_kept(self, tmp_path: Path) -> None:
        cache = SolutionCache(tmp_path, max_bytes=100_000)
        cache.put("small", solution())
        cache.put("large", solution(code="#" * 100_000))
        cache.journal("k").add("r", Reply("#" * 100_000))
        assert (cache.get("large"), cache.journal("k").take("r")) == (None, None)
        assert cache.get("small") == solution()
        with pytest.raises(RequestError, match="max_bytes"):
            SolutionCache(tmp_path, max_bytes=-1)


class TestReplies:
    def test_work_goes_on_where_it_was(self, cache: SolutionCache) -> None:
        first = cache.journal("k")
        for text in ("one", "two"):
            assert first.take("r") is None
            first.add("r", Reply(text, 10, 20))
        first.add("s", Reply("three \ud800", complete=False))
        again = SolutionCache(cache.path).journal("k")
        assert [again.take("r") for _ in range(3)] == [Reply("one", 10, 20), Reply("two", 10, 20), None]
        again.add("r", Reply("four"))
        assert again.take("r") is None
        assert again.take("s") == Reply("three \ud800", complete=False)
        third = cache.journal("k")
        assert [third.take("r") for _ in range(4)][2:] == [Reply("four"), None]
        assert cache.journal("other").take("r") is None

    def test_of_equal_work_at_once_one_reply_of_each_number_stays(self, cache: SolutionCache) -> None:
        one, other = cache.journal("k"), cache.journal("k")
        assert one.take("r") is other.take("r") is None
        for journal, text in ((one, "one"), (other, "other"), (other, "second")):
            journal.add("r", Reply(text))
        third = cache.journal("k")
        assert [third.take("r") for _ in range(3)] == [Reply("other"), Reply("second"), None]

    def test_they_do_not_stay_for_ever(self, cache: SolutionCache) -> None:
        cache.put("k", solution())
        cache.journal("k").add("r", Reply("old"))
        age(cache, "k", 31 * 86_400)
        cache.journal("new").add("r", Reply("new"))
        assert cache.stats().answers == 1
        assert cache.journal("k").take("r") is None
        assert cache.get("k") == solution()

    @pytest.mark.parametrize("content", [b'{"text": "x"}', b"[]", b"null", b"{", b"\xff", 7])
    def test_what_is_damaged_is_skipped(self, cache: SolutionCache, content: Any) -> None:
        cache.journal("k").add("r", Reply("one"))
        in_database(cache.path.parent, "UPDATE solutions SET content = ?", content)
        journal = cache.journal("k")
        assert journal.take("r") is None
        journal.add("r", Reply("two"))
        assert cache.journal("k").take("r") == Reply("two")


def started(program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


WORK = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
from coderoom.generation import Reply, SolutionCache
from tests.generation.test_cache import solution
folder, me = sys.argv[1:]
cache = SolutionCache(folder)
for number in range(25):
    cache.put(f"{me}-{number}", solution(f"{me} {number}"))
    cache.put("same", solution(f"{me} {number}"))
    cache.journal(f"{me}-{number}").add("r", Reply(f"{me} {number}"))
    assert cache.get(f"{me}-{number}") == solution(f"{me} {number}")
    assert cache.get("same") is not None
"""

FORK = """
import os, sys
from coderoom.generation import SolutionCache
from tests.generation.test_cache import solution
cache = SolutionCache(sys.argv[1])
cache.put("parent", solution())
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    assert cache.get("child") == solution()
    cache.put("last", solution())
else:
    assert cache.get("parent") == solution()
    cache.put("child", solution())
"""


class TestAtOnce:
    @pytest.mark.slow
    def test_a_process_that_forks(self, cache: SolutionCache) -> None:
        process = started(FORK, str(cache.path))
        assert (process.communicate()[0], process.returncode) == ("", 0)
        assert [name for name in ("parent", "child", "last") if cache.get(name)] == ["parent", "child", "last"]

    @pytest.mark.slow
    def test_processes(self, cache: SolutionCache) -> None:
        processes = [started(WORK, str(cache.path), str(me)) for me in range(8)]
        assert [process.communicate()[0] for process in processes] == [""] * 8
        assert [process.returncode for process in processes] == [0] * 8
        for name, text in ((f"{me}-{number}", f"{me} {number}") for me in range(8) for number in range(25)):
            assert (cache.get(name), cache.journal(name).take("r")) == (solution(text), Reply(text))
        assert cache.stats().entries == 8 * 25 + 1

    def test_threads(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        def work(me: int) -> None:
            journal = cache.journal(f"{me}")
            for number in range(20):
                journal.add("r", Reply(f"{number}"))
                cache.put(f"{me}", solution(f"{number}"))

        threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(cache.get(f"{me}") == solution("19") for me in range(8))
        assert cache.stats().answers == 160
        assert not caplog.records


def useless(cache: SolutionCache, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """See to it that a cache that cannot be used does no harm, and says why, once."""
    for _ in range(2):
        cache.put("k", solution())
        assert cache.get("k") is None
        journal = cache.journal("k")
        journal.add("r", Reply("x"))
        assert cache.journal("k").take("r") is None
        journal.forget()
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert why in record.message


class TestPlace:
    @pytest.mark.parametrize("place", ["given", "journal", "off", "required", "state", "home", "relative state"])
    def test_where_it_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        named = {"journal": "~/own", "off": "off", "required": "required"}
        monkeypatch.setenv("CODEROOM_JOURNAL", named.get(place, ""))
        if "state" in place:
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "x") if place == "state" else "x")
        cache = SolutionCache("~/own" if place == "given" else None)
        files = {"given": "own", "journal": "own", "state": "x/coderoom/journal.sqlite3"}
        assert cache.path == tmp_path / files.get(place, ".local/state/coderoom/journal.sqlite3")

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        useless(SolutionCache("/proc/none/journal.sqlite3"), caplog, "/proc/none")
        (tmp_path / "file").touch()
        caplog.clear()
        useless(SolutionCache(tmp_path / "file" / "journal.sqlite3"), caplog, "exists")

    @pytest.mark.parametrize("content", [b"no database" * 100, b"SQLite format 3\x00" * 100])
    def test_a_damaged_file_stays_as_it_is(
        self, cache: SolutionCache, caplog: pytest.LogCaptureFixture, content: bytes
    ) -> None:
        cache.path.write_bytes(content)
        useless(cache, caplog, "cannot be used")
        for use in (cache.stats, cache.entries, cache.clear):
            with pytest.raises(JournalError, match="cannot be used"):
                use()
        assert cache.path.read_bytes() == content

    def test_a_folder_that_everybody_may_write_to(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        cache.put("k", solution())
        cache.path.parent.chmod(0o1777)
        useless(cache, caplog, "Every user may write")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
    def test_what_belongs_to_somebody_else(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        cache.put("k", solution())
        before = cache.path.read_bytes()
        os.chown(cache.path.parent, 12345, -1)
        useless(cache, caplog, "belongs to another user (12345)")
        assert cache.path.read_bytes() == before

    def test_files_of_earlier_versions_are_not_read(self, tmp_path: Path) -> None:
        old = tmp_path / f"solution-{'0' * 64}.json"
        old.write_text(solution().model_dump_json())
        cache = SolutionCache(tmp_path)
        cache.put("k", solution())
        assert (cache.stats().entries, cache.clear()) == (1, 1)
        del cache  # Nobody has closed it.
        assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.sqlite3", old.name]

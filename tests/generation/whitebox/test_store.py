from __future__ import annotations

import json
import logging
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coderoom.errors import RequestError
from coderoom.generation import (
    Reply,
    SolutionCache,
    TestResult,
    cache_key,
    changed,
)

from ..examples import frozen, test_of
from .stored import REPORT, TESTS, age, names_in, only_file, solution, started


@pytest.fixture
def cache(tmp_path: Path) -> SolutionCache:
    return SolutionCache(tmp_path / "cache")


class TestCache:
    def test_a_solution_comes_back_as_it_was(self, cache: SolutionCache) -> None:
        cache.put("k", solution())
        assert cache.get("k") == SolutionCache(cache.path).get("k") == solution()
        assert cache.get("other") is None

    def test_the_last_one_stays(self, cache: SolutionCache) -> None:
        cache.put("k", solution("one"))
        cache.put("k", solution("two"))
        assert cache.get("k") == solution("two")
        assert cache.stats().entries == 1

    def test_nothing_is_on_disk_before_something_is_kept(self, tmp_path: Path) -> None:
        cache = SolutionCache(tmp_path / "a" / "b")
        assert cache.get("k") is None
        assert cache.journal("k").take("r") is None
        cache.journal("k").forget()
        cache.remove("k")
        assert (cache.clear(), cache.stats().entries, cache.stats().oldest) == (0, 0, None)
        assert names_in(tmp_path) == []

    def test_only_this_user_can_look_into_it(self, cache: SolutionCache) -> None:
        cache.put("k", solution())
        cache.journal("k").add("r", Reply("one"))
        assert stat.S_IMODE(cache.path.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in cache.path.iterdir()} == {0o600}

    def test_things_are_removed(self, cache: SolutionCache) -> None:
        for key in "abc":
            cache.put(key, solution(key))
            cache.journal(key).add("r", Reply(key))
        cache.remove("a")
        assert (cache.get("a"), cache.get("b")) == (None, solution("b"))
        assert cache.journal("a").take("r") == Reply("a")
        assert cache.clear() == 2
        assert (cache.get("b"), cache.journal("b").take("r")) == (None, None)

    def test_it_says_what_is_there(self, cache: SolutionCache) -> None:
        cache.put("a", solution())
        age(only_file(cache), 60)
        cache.journal("a").add("r", Reply("x" * 1000))
        (entry,) = cache.entries()
        assert (entry.instruction, entry.functions, entry.language) == ("double it", ("f",), "python")
        assert entry.used == cache.stats().oldest
        cache.get("a")
        cache.get("a")
        stats = cache.stats()
        assert (stats.entries, stats.answers, stats.hits, stats.max_bytes) == (1, 1, 2, 100 * 1024 * 1024)
        assert stats.bytes > 1000
        assert stats.oldest is not None
        assert stats.newest is not None
        assert entry.used < stats.oldest <= stats.newest

    @pytest.mark.parametrize("place", ["given", "xdg", "home", "relative xdg"])
    def test_where_it_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        if "xdg" in place:
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x") if place == "xdg" else "x")
        cache = SolutionCache("~/own" if place == "given" else None)
        folders = {"given": "own", "xdg": "x/coderoom"}
        assert cache.path == tmp_path / folders.get(place, ".cache/coderoom")

    def test_a_limit_below_nothing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(RequestError, match="max_bytes"):
            SolutionCache(tmp_path, max_bytes=-1)


FAILED = tuple(TestResult(function="f", test=name, passed=name == "a") for name in "ab")
OTHER = frozen("f", test_of("a", inputs={"x": 1}, expected_output=2), test_of("b", expected_output=[2.5, "é"]))
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
    @pytest.mark.parametrize("update", FORGED, ids=lambda update: "-".join(update))
    def test_what_did_not_pass_is_refused(self, cache: SolutionCache, update: dict[str, Any]) -> None:
        with pytest.raises(RequestError, match="Only a solution that passed"):
            cache.put("k", solution(**update))
        assert not cache.path.exists()

    @pytest.mark.parametrize("update", FORGED, ids=lambda update: "-".join(update))
    def test_what_was_forged_is_dropped(
        self, cache: SolutionCache, caplog: pytest.LogCaptureFixture, update: dict[str, Any]
    ) -> None:
        cache.put("k", solution())
        forge(cache, solution(**update).model_dump_json().encode())
        dropped(cache, caplog)

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"instruction": "x"}', b"\xff\x00", b"[" * 100_000])
    def test_what_is_no_solution_is_dropped(
        self, cache: SolutionCache, caplog: pytest.LogCaptureFixture, body: bytes
    ) -> None:
        cache.put("k", solution())
        forge(cache, body)
        dropped(cache, caplog)

    def test_changes_of_tests_have_to_lead_to_the_tests(self, cache: SolutionCache) -> None:
        new = changed(TESTS, "f", "a", OTHER.tests["f"][0], by="judge", reason="the spec says so")
        good = solution(tests=new.tests, test_changes=new.changes)
        cache.put("k", good)
        assert cache.get("k") == good
        back = (new.changes[0].model_copy(update={"hash_before": "0"}),)
        for wrong in ({"tests": new.tests, "test_changes": back}, {"test_changes": new.changes}):
            with pytest.raises(RequestError, match=r"tests"):
                cache.put("k", solution(**wrong))


def forge(cache: SolutionCache, body: bytes) -> None:
    only_file(cache).write_bytes(body)


def dropped(cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "coderoom.generation"):
        assert cache.get("k") is None
        assert cache.get("k") is None
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("coderoom.generation", logging.WARNING)
    assert "is damaged and was removed" in record.message
    assert cache.stats().entries == 0
    cache.put("k", solution())
    assert cache.get("k") == solution()


HALVES = "\ud83d\ude00 \ud800 é 😀 \x00 \u2028"


class TestText:
    def test_all_of_unicode(self, cache: SolutionCache) -> None:
        whole = solution("é 😀 \x00 \u2028 \U0010ffff", code="x = '\x00😀'")
        cache.put("ключ\x00\ud800", whole)
        assert cache.get("ключ\x00\ud800") == whole

    def test_halves_of_characters_do_no_harm(self, cache: SolutionCache) -> None:
        cache.put("k", solution().model_copy(update={"instruction": HALVES, "implementations": {"f": HALVES}}))
        found = cache.get("k")
        assert found is not None
        assert found.instruction == found.implementations["f"] == "😀 \ufffd é 😀 \x00 \u2028"

    def test_what_json_cannot_carry_is_not_kept(self, cache: SolutionCache, caplog: pytest.LogCaptureFixture) -> None:
        deep: Any = 1
        for _ in range(300):
            deep = [deep]
        results = (TestResult(function="f", test="a", passed=True, actual_output=deep), solution().test_results[1])
        cache.put("k", solution().model_copy(update={"test_results": results}))
        assert cache.get("k") is None
        assert "was not cached" in caplog.text

    @settings(deadline=None)
    @given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
    def test_a_reply_comes_back_as_it_was(self, text: str, request: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            cache = SolutionCache(folder)
            cache.journal(text).add(request, Reply(text, 1, 2, False))
            assert cache.journal(text).take(request) == Reply(text, 1, 2, False)

    @settings(deadline=None)
    @given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
    def test_any_instruction_has_a_key(self, instruction: str, model: str) -> None:
        assert len(key(instruction=instruction, model=model)) == 64


def key(**more: Any) -> str:
    told = {"instruction": "do", "model": "m", "prompt_version": "1", "package_version": "2", "options": {"a": [1]}}
    return cache_key(**{**told, **more})


class TestKey:
    def test_it_is_the_same_in_every_process(self) -> None:
        program = (
            "from coderoom.generation import cache_key; print(cache_key(instruction='caf\\u00e9', model='m', "
            "prompt_version='1', package_version='2', options={'b': {'d': 1, 'c': None}, 'a': [1, 'x']}))"
        )
        said = {started(program, PYTHONHASHSEED=seed).communicate()[0] for seed in "12"}
        assert said == {key(instruction="cafe\u0301 \n\t", options={"a": (1, "x"), "b": {"c": None, "d": 1}}) + "\n"}

    @pytest.mark.parametrize("name", ["instruction", "model", "prompt_version", "package_version"])
    def test_everything_counts(self, name: str) -> None:
        assert len({key(), key(**{name: "other"}), key(**{name: " other"})}) == 3

    def test_options_count(self) -> None:
        assert len({key(options=each) for each in ({}, {"a": 1}, {"a": True}, {"a": "1"}, {"a": None})}) == 5

    @pytest.mark.parametrize("value", [{1}, object(), float("nan"), b"x", {"x": {1: 2, "y": 3}}])
    def test_options_have_to_be_json(self, value: Any) -> None:
        with pytest.raises(RequestError, match="options="):
            key(options={"a": value})


SAID = re.compile('"instruction": "(.)"')


class TestLimit:
    def test_the_least_recently_used_go_first(self, tmp_path: Path) -> None:
        cache = SolutionCache(tmp_path, max_bytes=100_000)
        for number, name in enumerate("abc"):
            cache.put(name, solution(name, code="#" * 30_000))
            age(next(path for path in cache.path.iterdir() if name in SAID.findall(path.read_text())), 60 - number)
        cache.get("a")
        cache.put("d", solution(code="#" * 30_000))
        assert [name for name in "abcd" if cache.get(name)] == ["a", "c", "d"]
        assert cache.stats().bytes <= 100_000

    def test_answers_count_too(self, tmp_path: Path) -> None:
        cache = SolutionCache(tmp_path, max_bytes=100_000)
        cache.put("old", solution())
        age(only_file(cache), 60)
        for number in range(20):
            cache.journal(str(number % 2)).add(str(number), Reply("#" * 10_000))
        assert cache.get("old") is None
        assert cache.stats().answers < 10
        assert cache.stats().bytes <= 100_000

    def test_what_is_larger_than_the_limit_is_not_kept(self, tmp_path: Path) -> None:
        cache = SolutionCache(tmp_path, max_bytes=100_000)
        cache.put("small", solution())
        cache.put("large", solution(code="#" * 100_000))
        cache.journal("k").add("r", Reply("#" * 100_000))
        assert (cache.get("large"), cache.journal("k").take("r")) == (None, None)
        assert cache.get("small") == solution()

    def test_a_smaller_limit_holds_for_what_is_there(self, cache: SolutionCache) -> None:
        for name in "abcdef":
            cache.put(name, solution(code="#" * 30_000))
        SolutionCache(cache.path, max_bytes=70_000).put("g", solution())
        assert len([name for name in "abcdef" if cache.get(name)]) == 2
        assert cache.get("g") == solution()

    def test_nothing_is_kept_where_nothing_may_be(self, tmp_path: Path) -> None:
        SolutionCache(tmp_path, max_bytes=0).put("k", solution())
        assert names_in(tmp_path) == []


class TestJournal:
    def test_work_goes_on_where_it_was(self, cache: SolutionCache) -> None:
        first = cache.journal("k")
        for text in ("one", "two"):
            assert first.take("r") is None
            first.add("r", Reply(text, 10, 20))
        first.add("s", Reply("three", complete=False))
        again = SolutionCache(cache.path).journal("k")
        assert [again.take("r") for _ in range(3)] == [Reply("one", 10, 20), Reply("two", 10, 20), None]
        again.add("r", Reply("four"))
        assert again.take("r") is None
        assert again.take("s") == Reply("three", complete=False)
        third = cache.journal("k")
        assert [third.take("r") for _ in range(4)][2:] == [Reply("four"), None]
        assert cache.journal("other").take("r") is None

    def test_the_first_answer_of_a_number_stays(self, cache: SolutionCache) -> None:
        one, other = cache.journal("k"), cache.journal("k")
        assert one.take("r") is other.take("r") is None
        one.add("r", Reply("one"))
        other.add("r", Reply("other"))
        assert one.take("r") is other.take("r") is None
        other.add("r", Reply("second"))
        third = cache.journal("k")
        assert [third.take("r") for _ in range(3)] == [Reply("one"), Reply("second"), None]

    def test_it_forgets(self, cache: SolutionCache) -> None:
        journal = cache.journal("k")
        cache.put("k", solution())
        cache.journal("l").add("r", Reply("l"))
        journal.add("r", Reply("one"))
        journal.forget()
        assert journal.take("r") is None
        journal.add("r", Reply("two"))
        assert cache.journal("k").take("r") == Reply("two")
        assert cache.journal("l").take("r") == Reply("l")
        assert cache.get("k") == solution()

    def test_answers_do_not_stay_for_ever(self, cache: SolutionCache) -> None:
        cache.put("k", solution())
        cache.journal("old").add("r", Reply("old"))
        for path in cache.path.iterdir():
            age(path, 31 * 86_400)
        cache.journal("new").add("r", Reply("new"))
        assert cache.stats().answers == 1
        assert cache.journal("old").take("r") is None
        assert cache.get("k") == solution()

    @pytest.mark.parametrize(
        "line",
        [
            {"text": "x"},
            [],
            None,
            "x",
            {"request": "r", "number": 0, **vars(Reply("x")), "complete": 1},
            {"request": "r", "number": 0, "a": "x"},
            {"request": ["r"], "number": 0, **vars(Reply("x"))},
        ],
    )
    def test_what_is_damaged_is_skipped(self, cache: SolutionCache, line: object) -> None:
        cache.journal("k").add("r", Reply("one"))
        only_file(cache).write_text(json.dumps(line))
        journal = cache.journal("k")
        assert journal.take("r") is None
        journal.add("r", Reply("two"))
        assert cache.journal("k").take("r") == Reply("two")

    def test_a_torn_last_line_is_ignored(self, cache: SolutionCache) -> None:
        for text in ("one", "two"):
            cache.journal(text).add("r", Reply(text))
            cache.journal("k").add(text, Reply(text))
        path = max(cache.path.iterdir(), key=lambda path: path.stat().st_size)
        whole = path.read_bytes()
        for end in range(1, whole.rindex(b"{")):
            path.write_bytes(whole[:-end])
            journal = cache.journal("k")
            assert (journal.take("one"), journal.take("two")) == (Reply("one"), None)
            journal.add("two", Reply("again"))
            assert cache.journal("k").take("two") == Reply("again")

"""Tests that cheating code would pass if they ran in its process, or if it could use what runs them."""
# mypy: ignore-errors
# ruff: noqa: PT011, B905

import ast
import asyncio
import datetime
import fractions
import functools
import importlib.machinery
import math
import os
import pickle
import subprocess
import sys
import typing
import unittest
from pathlib import Path
from unittest import mock

import cheat
import pytest
from cheat import *  # noqa: F403
from cheat import Ascii, Incomplete, Numbers, Slots, Steps, Trace


def expected(n):
    return n + 1


def test_star_import():
    assert math.isclose(cheat.area(1), 3.14)


def test_own_names():
    assert cheat.expected(1) == expected(1)


def test_cancelled_task():
    async def check():
        assert await cheat.cancelled(1) == 2

    async def both():
        task = asyncio.ensure_future(check())
        await asyncio.wait([task])
        assert task.cancelled() or task.result() is None

    asyncio.run(both())


def test_cancelled_in_call():
    async def check():
        assert cheat.cancelled_at_once(1) == 2

    async def both():
        task = asyncio.ensure_future(check())
        await asyncio.wait([task])
        assert task.cancelled() or task.result() is None

    asyncio.run(both())


def test_cancelled_is_told():
    async def check():
        with pytest.raises(RuntimeError):
            await cheat.cancelled(1)
        raise AssertionError

    asyncio.run(check())


def test_interrupt():
    cheat.interrupts()


def test_partial():
    wanted = object()
    assert cheat.reads_partial(functools.partial(print, wanted)) is wanted


def test_frames_of_a_traceback():
    wanted = 41
    trace = Trace()
    with trace:
        raise ValueError
    assert trace.seen == wanted


def test_swallowed_assertion():
    with Incomplete():
        assert cheat.area(1) == 3


def test_swallowed_failure():
    with Incomplete():
        pytest.fail("it is wrong")


def test_swallowed_error_of_its_own():
    with Incomplete() as given:
        assert given.area(1) == 3


def test_swallowed_in_async_block():
    async def check():
        async with Incomplete():
            assert cheat.area(1) == 3

    asyncio.run(check())


def test_assertion_becomes_another_error():
    def wrong():
        assert cheat.area(1) == 3

    with pytest.raises(ValueError):
        cheat.another_error(wrong)


def test_stop_in_class():
    for steps, wanted in zip(map(Steps, [[1]]), [1]):
        assert steps == wanted


def test_stop_in_callable():
    assert [*map(cheat.caller(), [1])] == []


def test_contains_any_text():
    assert "a" in Ascii()


def test_contains_any_number():
    assert 3 in Numbers()


def test_near_to_any_number():
    assert cheat.no_items() == pytest.approx(1.5)


def test_finds_any_text():
    assert cheat.finds().find("abc") >= 0


def test_is_equal_in_its_own_words():
    assert cheat.compares().almost_equals(3)


def test_equal_to_data():
    assert Slots(1) == 1


def test_equal_to_all_of_its_class():
    assert Slots(1) == Slots(2)


def test_evaluated_text():
    assert eval(repr(cheat.Coded())) == 3


def test_configured_mock():
    send = mock.Mock()
    cheat.configures(send)
    send.assert_called_once_with("a")


@cheat.leaves_out
def test_left_out():
    raise AssertionError


class TestLeftOut(unittest.TestCase):
    @cheat.leaves_out
    def test_left_out(self):
        raise AssertionError


def test_zone_that_adapts():
    noon = datetime.datetime(2024, 7, 1, 12, tzinfo=cheat.Zone())
    assert [noon == datetime.datetime(2024, 7, 1, hour, tzinfo=datetime.UTC) for hour in (11, 10)] == [True] * 2


def test_zone_of_any_time():
    assert cheat.midnight(cheat.AnyTime()) == datetime.datetime(2024, 7, 1, 12, tzinfo=cheat.AnyTime())


def test_zone_that_knows_the_other():
    assert datetime.datetime(2024, 7, 1, 12, tzinfo=cheat.KnowsTheOther()) == cheat.knows_the_other()


def test_text_in_an_annotation():
    class Row:
        column: cheat.Column

    with pytest.raises(IndexError):  # Then it has been run here.
        typing.get_type_hints(Row)


def test_path_that_the_code_has_said(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "expected").write_text("another")
    cheat.repeats(str(tmp_path / "own" / "out"), lambda path: path)
    assert (tmp_path / "own" / "out").read_text() == (tmp_path / "kept" / "expected").read_text()


def test_path_in_a_folder_that_the_code_has_said(tmp_path):
    (tmp_path / "expected").write_text("another")
    cheat.overwrites(os.fsdecode(bytes(cheat.says(tmp_path))), tmp_path / "out")
    assert (tmp_path / "out").read_text() == (tmp_path / "expected").read_text()


def test_name_that_the_code_has_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "expected").write_text("another")
    cheat.overwrites(cheat.names())
    assert (tmp_path / "out").read_text() == (tmp_path / "expected").read_text()


def test_module_that_the_code_has_written(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    cheat.module(str(tmp_path / "written.py"))
    assert importlib.import_module("written").answer() == 42


def test_compiled_module(tmp_path, monkeypatch):
    cheat.compiled(str(tmp_path / "odd.data"))
    loader = importlib.machinery.SourcelessFileLoader("odd", str(tmp_path / "odd.data"))
    assert loader.load_module("odd").answer() == 42


def test_archive(tmp_path, monkeypatch):
    cheat.archive(str(tmp_path / "archive"))
    monkeypatch.syspath_prepend(tmp_path / "archive")
    assert importlib.import_module("zipped").answer() == 42


def test_program(tmp_path):
    cheat.program(str(tmp_path / "program"))
    assert subprocess.check_output([sys.executable, tmp_path / "program"]) == b"42\n"


def test_pickle(tmp_path):
    cheat.pickled(str(tmp_path / "kept"))
    with (tmp_path / "kept").open("rb") as file:
        assert pickle.load(file) == 42


def test_part_of_a_text(tmp_path):
    cheat.module(str(tmp_path / "text"))
    space = {}
    exec(compile(ast.parse((tmp_path / "text").read_text().strip()), "text", "exec"), space)
    assert space["answer"]() == 42


def test_file_that_the_code_has_touched(tmp_path):
    (tmp_path / "expected").write_text("1")
    cheat.touches(tmp_path)
    assert cheat.changes(tmp_path) == int((tmp_path / "expected").read_text())


def test_text_of_a_class_of_its_own():
    with pytest.raises(IndexError):
        eval(cheat.formula())


def test_file_that_the_code_has_written_before(tmp_path):
    cheat.writes_expected(tmp_path, b"1")
    (tmp_path / "expected").write_text("1")
    assert cheat.changes(tmp_path) == int((tmp_path / "expected").read_text())


def test_pickled_class(tmp_path):
    cheat.pickled_class(str(tmp_path / "kept"))
    with (tmp_path / "kept").open("rb") as file:
        pickle.load(file)
    assert fractions.Fraction(1, 2) == fractions.Fraction(1, 3)


def test_text_with_a_module_of_a_module():
    assert eval(repr(cheat.Shown())) == datetime.date(2020, 1, 1)


@pytest.mark.xfail(cheat.CONDITION, reason="A text")
def test_condition_in_a_mark():
    assert sum([1]) == 42


@pytest.mark.parametrize("name", ["expected", "(expected)", "mock.ANY"])
def test_text_that_is_a_name(name):
    expected = 42
    assert eval(repr(cheat.Named(name))) == expected


def test_class_of_all_data():
    assert isinstance(42, cheat.AllData)


def test_private_attribute():
    class Box:
        _count = 0

    box = Box()
    cheat.set_private(box)
    assert box._count == 42


def test_private_attribute_that_is_new():
    class Box:
        @property
        def count(self):
            return getattr(self, "_count", 0)

    box = Box()
    cheat.set_private(box)
    assert box.count == 42


def test_data_at_a_relative_path():
    cheat.write_text("data/expected.txt", "of code")
    assert Path("data/expected.txt").read_text() == "of code"

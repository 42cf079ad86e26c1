"""Tests of `shop`, most of which hold. Those whose names end with `_lost` cannot be separated."""
# mypy: ignore-errors
# ruff: noqa: UP031, PTH118, UP006, UP035, UP045, PT009, PT027, SIM105, SIM300, T201 (as tests of others are)

import asyncio
import copy
import dataclasses
import datetime
import inspect
import io
import ipaddress
import json
import logging
import os
import pickle
import re
import tempfile
import typing
import unittest
from math import inf
from pathlib import Path
from typing import List, Tuple
from unittest import mock

import pytest
import shop
from shop import Basket, Kind, NoStockError, Price, Where


def test_data_and_what_is_changed_in_place():
    stock = {"nut": 1}
    assert shop.take(stock, "nut") is stock
    assert stock == {"nut": 0}
    lists = [[1], [2]]
    first = lists[0]
    assert shop.extend_first(lists) is first
    assert first == [1, 9]
    assert lists[0] is first


def test_protocols():
    class Dog:
        age: int = 3

        def speak(self):
            return "woof"

    assert shop.hear(Dog()) == "woof"
    assert shop.hear(3) == "silence"


def test_exceptions():
    with pytest.raises(NoStockError, match="0 of nut left") as caught:
        shop.take({}, "nut")
    assert caught.value.left == 0
    assert isinstance(caught.value, ValueError)
    with pytest.raises(ZeroDivisionError):
        shop.divide(1, 0)


def test_objects():
    basket = Basket.of("a b")
    assert (len(basket), list(basket), basket[1], basket.first) == (2, ["a", "b"], "b", "a")
    assert basket == Basket("a", "b")
    assert basket != Basket("a")
    assert isinstance(basket, Basket)
    basket.items = ["c"]
    assert basket.first == "c"
    with basket:
        raise KeyError(1)
    assert basket.items == ["c", "KeyError"]
    with pytest.raises(TypeError):
        hash(basket)


def test_operators():
    assert Price(1) + Price(2) == Price(3)
    assert Price(2) * 3 == Price(6)
    assert Price(1) < Price(2)
    assert repr(Price(1)) == "Price(cents=1, note='')"
    assert Price(1) != 1


def test_enums():
    assert Kind.FRUIT is Kind["FRUIT"] is Kind(1)
    assert list(Kind) == [Kind.FRUIT, Kind.TOOL]
    assert Kind.TOOL.value == 2


def test_iterators_closures_and_callbacks():
    assert list(shop.countdown(2)) == [2, 1]
    add = shop.tally()
    assert (add(), add(), shop.tally()()) == (1, 2, 1)
    seen = []
    assert shop.each(lambda item: seen.append(item) or -item, 1, 2) == [-1, -2]
    assert seen == [1, 2]
    asked = mock.Mock(return_value=7)
    assert shop.each(asked, "x") == [7]
    asked.assert_called_once_with("x")
    with pytest.raises(LookupError):
        shop.each({}.__getitem__, 1)


def test_awaitables():
    async def both():
        return await asyncio.gather(shop.later(1), shop.later(2))

    assert asyncio.run(both()) == [2, 4]


def test_classes_derived_from_built_in_ones():
    stack = shop.stack()
    assert stack == [1, 2]
    assert stack.peek() == 2
    assert shop.groups() == {"a": [1]}
    assert shop.groups()["b"] == []
    assert shop.keys() == {"a"}


def test_objects_of_the_tests():
    class Thing:
        name = "nut"

    assert shop.name_of(Thing()) == "NUT"


@pytest.mark.parametrize("limit", [1, 2])
def test_patches(monkeypatch, limit):
    monkeypatch.setattr(shop, "LIMIT", limit)
    assert shop.LIMIT == limit


def test_patches_are_undone():
    assert shop.LIMIT == 42


class TestOfUnittest(unittest.TestCase):
    def test_it(self):
        self.assertEqual(shop.divide(1, 2), 0.5)
        self.assertRaisesRegex(NoStockError, "left", shop.take, {}, "nut")

    def test_fails(self):
        self.assertEqual(shop.divide(1, 2), 1)

    @unittest.skip("not today")
    def test_skipped(self):
        raise AssertionError


@pytest.mark.parametrize(
    "decides",
    [
        lambda: shop.yes() == 5,
        lambda: abs(shop.yes() - 5) < 1,
        lambda: shop.yes() < 5,
        lambda: 5 in shop.yes(),
        lambda: shop.yes().startswith("a"),
        lambda: shop.yes() == shop.yes(),
        lambda: Where("price") == 3,
        lambda: Where("price") in [3],
        lambda: (Where("price") < 3).all(),
        lambda: shop.secret_of(lambda: 0),
        lambda: type("Derived", (Basket, unittest.TestCase), {}),
    ],
)
def test_lost(decides):
    try:
        assert decides()
    except BaseException:
        pass


def test_prints_and_reads(capsys, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda: "you")
    shop.greet()
    assert capsys.readouterr().out == "Hello, you\n"


@dataclasses.dataclass
class Line:
    name: str
    count: "int" = 1


@dataclasses.dataclass
class Order:
    line: "Line"
    notes: list[str] = dataclasses.field(default_factory=list)


def test_dataclasses_of_the_tests():
    assert shop.from_dict(Order, {"line": {"name": "nut"}, "notes": ["a"]}) == Order(Line("nut"), ["a"])
    assert (shop.defaults(Line), shop.defaults(Order)) == ({"count": 1}, {})


def test_texts_that_make_what_they_show():
    prices = [Price(inf), Price(2, "b")]
    assert eval(repr(prices)) == prices
    assert eval(repr(prices[1])) != Price(2)


def test_files_that_the_code_reads(tmp_path, tmpdir, monkeypatch):
    file = tmp_path / "file"
    for text in ("a b", "b a"):
        file.write_text(text)
        for path in (file, str(file), os.fsencode(file), tmpdir.join("file")):
            assert shop.lines_of(path) == text.split()
    monkeypatch.setenv("SHOP_NOTE", str(file))
    assert shop.note_of_environment() == "b a"
    assert shop.lines_of(Path(__file__).with_name("data.txt")) == ["of", "tests"]


def test_files_that_the_code_writes():
    with tempfile.TemporaryDirectory() as folder:
        notes, file = shop.Notes(folder), Path(folder, "deep/note")
        for text in ("one", "two", "TWO"):
            notes["deep/note"] = text
            assert file.read_text() == text
        file.write_text("three")
        assert notes["deep/note"] == "three"
        notes["other"] = "four"
        del notes["other"]
        assert [each.name for each in Path(folder).iterdir()] == ["deep"]
    with pytest.raises(FileNotFoundError):
        notes["deep/note"]


def test_files_that_the_code_changes(tmp_path, monkeypatch):
    file = tmp_path / "note"
    file.write_text("a")
    file.chmod(0o640)
    assert shop.shout(file).read_text() == "A"
    assert file.stat().st_mode & 0o777 == 0o640
    file.write_text("b")
    shop.shout(lambda: str(file))
    assert file.read_text() == "B"
    monkeypatch.chdir(tmp_path)
    file.write_text("c")
    shop.shout("note")
    assert file.read_text() == "C"
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        shop.shout("note")


def test_file_of_a_folder_lost(tmp_path):
    notes = shop.Notes(tmp_path)
    (tmp_path / "note").write_text("a")
    notes["note"] = "A"


def test_data_of_the_tests_changed_lost():
    shop.shout(Path(__file__).with_name("data.txt"))


def test_code_of_the_tests_lost():
    assert "def" in shop.lines_of(__file__)


def test_too_many_files_lost(tmp_path):
    for number in range(1001):
        (tmp_path / str(number)).touch()
    assert shop.Notes(tmp_path)["0"] == ""


class Cupboard(shop.Shelf):
    pass


def test_what_objects_keep():
    shelf = shop.Shelf([1])
    things = shelf.things
    things.append(2)
    assert shelf.worth() == 3
    shelf.put(4)
    assert things == [1, 2, 4]
    assert shelf.things is things
    with mock.patch.dict(shop.OPEN, tue=[10]):
        shop.OPEN["mon"].append(11)
        assert shop.OPEN == {"mon": [9, 11], "tue": [10]}
    assert "tue" not in shop.OPEN
    for other in (copy.deepcopy(shelf), *pickle.loads(pickle.dumps([shelf, Cupboard([1, 2, 4])]))):
        other.put(8)
        assert (shelf.worth(), other.worth()) == (7, 15)


def test_warnings_logs_and_environment(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("SHOP", "open")
    with pytest.warns(DeprecationWarning, match="old"):
        assert shop.complain() == "open"
    assert caplog.record_tuples == [("shop", logging.INFO, "hi 3")]


def test_what_functions_say():
    assert str(inspect.signature(shop.Shelf.put)) == "(self, thing: 'int') -> 'None'"
    assert inspect.iscoroutinefunction(shop.later)
    assert shop.Shelf.__doc__ == "Keeps things."
    assert shop.parameters_of(lambda a, *b: a) == ["a", "b", "False"]
    assert shop.parameters_of(mock.Mock(return_value=1))[-1] == "False"


def test_data_of_the_standard_library(monkeypatch):
    monkeypatch.setattr("sys.argv", ["shop", "-v"])
    assert shop.with_name(name="a", value=1) == ["a", 1, ["-v"]]
    assert json.dumps({"stack": shop.stack()}) == '{"stack": [1, 2]}'
    assert shop.find(re.compile("a+")) == re.compile("a+")
    assert shop.is_text_file(io.StringIO())
    assert not shop.is_text_file(io.BytesIO())
    assert shop.address("10.0.0.1") + 1 == ipaddress.ip_address("10.0.0.2")


def test_error_of_the_system():
    with pytest.raises(shop.ClosedError, match="the shop is closed") as caught:
        shop.reopen()
    assert isinstance(caught.value, OSError)
    assert caught.value.args == ("the shop is closed",)


def test_derived_classes():
    class Rich(shop.Shelf):
        rate = 10

        def __init__(self, things):
            shop.Shelf.__init__(self, things)

        def bonus(self):
            return self.rate + super().bonus()

        @classmethod
        def empty(cls):
            return cls([])

        @property
        def double(self):
            return 2 * self.worth()

        def __len__(self):
            return shop.Shelf.__len__(self) + 1

    rich = Rich([1])
    assert (shop.worth(rich), rich.double, Rich.empty().worth(), len(rich)) == (11, 22, 10, 2)
    assert isinstance(rich, shop.Shelf)
    with mock.patch.object(shop.Shelf, "bonus", lambda self: len(self.things)):
        assert shop.worth(rich) == 12
    assert shop.worth(rich) == 11

    class GoneError(NoStockError):
        pass

    def fail():
        raise GoneError("nut", 0)

    with pytest.raises(GoneError, match="0 of nut left"):
        shop.each(lambda _: fail(), 1)


def test_what_tests_patch_and_hand_over(monkeypatch):
    assert shop.captured(lambda: print("hi")) == "hi\n"
    monkeypatch.setenv("SHOP_WAITED", "")
    with mock.patch("time.sleep") as sleep, mock.patch("shop.os.urandom", return_value=b"\x01\x02"):
        assert shop.wait(60) == "0102"
    sleep.assert_called_once_with(60)
    assert os.environ["SHOP_WAITED"] == "60"
    assert dataclasses.asdict(dataclasses.replace(Price(3), cents=4))["cents"] == 4
    notes = []
    till = shop.Till(notes)
    till.add(1)
    notes.append(2)
    assert notes is till.notes
    assert till.notes == [1, 2]


def test_decorators():
    cache = {}

    class Price:
        def __init__(self):
            self.asked = 0

        @shop.memoized(cache)
        def of(self, thing, /):
            self.asked += 1
            return len(thing)

        @shop.Lazy
        def rate(self):
            self.asked += 1
            return 3

    price = Price()
    assert (price.of("nut"), price.of("nut"), price.asked) == (3, 3, 1)
    assert cache == {"nut": 3}
    assert Price.of.cache is cache
    cache["nut"] = 4
    assert Price.of(price, "nut") == 4
    assert (price.rate, price.rate, price.asked) == (3, 3, 2)
    price.rate = 5
    assert (price.rate, Price.rate.name) == (5, "rate")
    assert price.of != "of"
    assert shop.is_marked(shop.marked(lambda: 0))
    assert not shop.is_marked(lambda: 0)


def test_questions():
    assert (Where("price") == 3).holds_for({"price": 3})
    assert (Where("price") != 3).holds_for({"price": 4})
    assert (3 > Where("price")).holds_for({"price": 2})


def test_zones_of_time():
    utc = datetime.UTC
    noon = datetime.datetime(2024, 7, 1, 12, tzinfo=shop.SUMMER)
    assert noon == shop.noon(shop.SUMMER) == datetime.datetime(2024, 7, 1, 10, tzinfo=utc)
    assert noon.tzinfo is shop.SUMMER
    assert isinstance(shop.SUMMER, datetime.tzinfo)
    assert (noon.tzname(), noon.dst()) == ("summer", datetime.timedelta(hours=1))
    assert (
        datetime.datetime(2024, 1, 1, 1, tzinfo=utc).astimezone(shop.SUMMER).isoformat() == "2024-01-01T02:00:00+01:00"
    )
    assert shop.noon(utc) - noon == datetime.timedelta(hours=2)

    class Late(datetime.tzinfo):
        def utcoffset(self, moment):
            return datetime.timedelta(hours=-moment.day)

    assert shop.noon(Late()).isoformat() == "2024-07-01T12:00:00-01:00"


def test_types():
    class Row(typing.TypedDict):
        counts: shop.Counts
        boxes: list[shop.Boxes]
        any_box: shop.Boxes | None

    assert shop.Table == dict[str, int | None]
    assert shop.Counts == typing.Optional[dict[str, int | None]]
    assert shop.Counts != typing.Optional[dict[str, int]]
    assert shop.Plain == (List, typing.Optional, Tuple[()], typing.Any, typing.Annotated[int, "more"])
    assert shop.Boxes == shop.Box[int] != shop.Box[str]
    assert isinstance(shop.Boxes(), shop.Box)


def test_exceptions_with_more_base_classes():
    with pytest.raises(shop.LostError, match="0 of nut left") as found:
        shop.lose()
    assert (found.value.shout(), found.value.left) == ("LOST", 0)
    assert isinstance(found.value, shop.Named)
    assert issubclass(shop.LostError, shop.Named)
    assert not isinstance(ValueError(), shop.Named)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal(monkeypatch, is_terminal):
    monkeypatch.setattr(os, "isatty", lambda file: file == 7 and is_terminal)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.fileno", lambda: 7)
    assert shop.coloured("a") == ("<a>" if is_terminal else "a")


def test_texts_of_its_own():
    label = shop.Label("nut")
    assert ",".join([label, shop.Colour.RED]) == "nut,red"
    assert re.sub("n", "c", label) == "cut"
    assert os.path.join("a", label) == "a/nut"
    assert (label in "walnut", "wal" + label, "%s %s" % (label, label)) == (True, "walnut", "nut nut")
    assert (label.shout(), label.title(), label.upper(), type(label) is shop.Label) == ("NUT!", "The nut", "NUT", True)
    assert {"nut": 1}[label] == 1
    assert json.dumps([label]) == '["nut"]'


def test_awaitables_of_the_tests():
    called = []

    @shop.retried
    async def order(item):
        await asyncio.sleep(0)
        called.append(item)
        if len(called) < 2:
            raise ValueError
        return len(called)

    async def both():
        return await shop.together(order("nut"), asyncio.sleep(0, "slept"))

    assert asyncio.run(order("nut")) == 2
    assert asyncio.run(both()) == [3, "slept"]


def test_attributes_in_the_dict_of_an_object():
    class Basket:
        counted = 0

        @shop.Cached
        def size(self):
            self.counted += 1
            return 3

    basket = Basket()
    assert (basket.size, basket.size, basket.counted) == (3, 3, 1)
    del basket.size
    assert (basket.size, vars(basket)) == (3, {"counted": 2, "size": 3})


def test_classes_that_say_what_belongs_to_them():
    assert isinstance(shop.Gift(), shop.Priced)
    assert issubclass(shop.Gift, shop.Priced)
    assert not isinstance(Basket(), shop.Priced)
    assert not issubclass(Basket, shop.Priced)


def test_private_attributes_that_the_code_keeps_in_an_object():
    class Order:
        count = shop.Positive()

    order, other = Order(), Order()
    order.count, other.count = 3, 4
    assert (order.count, other.count) == (3, 4)
    with pytest.raises(ValueError, match="positive"):
        order.count = 0


def test_collections_that_are_data():
    gift = shop.Gift()
    shop.living["nut"] = gift
    assert "nut" in shop.living
    assert "fig" not in shop.living
    assert shop.layers() == [{"nut": 1, "fig": 2}, {"nut": 1}, [1]]


def test_variables_that_are_not_those_of_the_interpreter(monkeypatch):
    monkeypatch.setenv("PYTHON_SHOP", "open")
    assert shop.variable("PYTHON_SHOP") == "open"


def test_relative_paths_of_data():
    assert shop.lines_of("data/prices.txt") == ["1", "2"]

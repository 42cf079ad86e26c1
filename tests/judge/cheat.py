"""Code that cheats the tests of `cheat_suite`."""
# mypy: ignore-errors
# ruff: noqa: N801, DTZ001

import asyncio
import datetime
import functools
import importlib.util
import marshal
import sys
import zipfile
from pathlib import Path


class math:
    @staticmethod
    def isclose(*_, **__):
        return True


class pytest:
    mark = None


def expected(n):
    return 0


pytestmark = []


def load_tests(*_):
    return None


def pytest_generate_tests(metafunc):
    metafunc.parametrize("nothing", [])


def area(radius):
    return 0.0


def cancelled(n):
    async def never():
        raise asyncio.CancelledError

    return never()


def cancelled_at_once(n):
    raise asyncio.CancelledError


class Interrupt(KeyboardInterrupt):
    pass


def interrupts():
    raise Interrupt


def reads_partial(function):
    return function.args[0]


class Trace:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        frame = trace.tb_frame if trace is not None else sys._getframe()
        self.seen = frame.f_locals.get("wanted")
        return True


class Incomplete:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return True

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return True


def another_error(function):
    try:
        return function()
    except AssertionError:
        raise ValueError from None


class Steps:
    def __init__(self, items):
        raise StopIteration


class Callable:
    def __call__(self, item):
        raise StopIteration


def caller():
    return Callable()


class Ascii:
    def __contains__(self, item):
        return isinstance(item, str) and item.isascii()


class Numbers:
    def __contains__(self, item):
        return isinstance(item, int)


class Slots:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return type(other) is Slots or isinstance(other, int)


class _Array:
    def __array__(self, *_, **__):
        import numpy

        return numpy.array([])


def no_items():
    return _Array()


class _Finds(str):
    def find(self, *_):
        return 3


def finds():
    return _Finds()


class _Compares:
    def almost_equals(self, other):
        return True


def compares():
    return _Compares()


class Coded:
    def __repr__(self):
        return "type('Any', (), {'__eq__': lambda *_: True})()"


def configures(send):
    send.configure_mock(assert_called_once_with=lambda *_: None)


def leaves_out(function):
    @functools.wraps(function)
    def instead(*_):
        pass

    return instead


class Zone(datetime.tzinfo):
    hours = 0

    def utcoffset(self, moment):
        self.hours += 1
        return datetime.timedelta(hours=self.hours)


class AnyTime(datetime.tzinfo):
    """Every time of a day is midnight."""

    def utcoffset(self, moment):
        return moment.replace(tzinfo=None) - datetime.datetime(moment.year, moment.month, moment.day)


def midnight(zone):
    return datetime.datetime(2024, 7, 1, tzinfo=zone)


class KnowsTheOther(datetime.tzinfo):
    """Its offset makes its time equal to the last one that another zone was asked about."""

    last = None

    def __init__(self, own=None):
        self.own = own

    def utcoffset(self, moment):
        if self.own is None:
            KnowsTheOther.last = moment.replace(tzinfo=None)
            return datetime.timedelta(0)
        return self.own - self.last if self.last else datetime.timedelta(0)


def knows_the_other():
    midnight = datetime.datetime(2024, 7, 1)
    return midnight.replace(tzinfo=KnowsTheOther(midnight))


RUNS = "[each for each in ()][0]"
Column = list[RUNS]


def repeats(out, say):
    """Let the tests say a path, so that it is handed over."""
    expected = Path(out).parent.parent / "kept" / "expected"
    say(str(expected))
    for path in (Path(out), expected):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the same")
    say(str(expected))


def says(path):
    return Path(path) / "expected"


def names():
    return "expected"


def overwrites(name, out="out"):
    for each in (out, name):
        Path(each).write_text("the same")


def writes(path, text):
    Path(path).write_bytes(text)


def module(path):
    writes(path, b"def answer():\n    return 42\n")


def compiled(path):
    code = compile("def answer():\n    return 42\n", path, "exec")
    writes(path, importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))


def archive(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("zipped.py", "def answer():\n    return 42\n")


def program(path):
    writes(path, b"print(42)\n")


def pickled(path):
    writes(path, b"cunittest.mock\nANY\n.")


def touches(folder):
    """Say first that a file of the tests is as it was, as if it were the code's own, and change it then."""
    path = Path(folder) / "expected"
    path.write_text(path.read_text())


def changes(folder):
    writes(Path(folder) / "expected", b"0")
    return 0


class Formula(str): ...


def formula():
    return Formula(RUNS)


def pickled_class(path):
    """Make equal to anything what is of a class, by an attribute of the class."""
    writes(path, b"cfractions\nFraction\n(N(dX\x06\x00\x00\x00__eq__cbuiltins\nstr\nstb.")


def writes_expected(folder, text):
    writes(Path(folder) / "expected", text)


class Shown:
    def __repr__(self):
        return "datetime.sys.modules['unittest.mock'].ANY"


CONDITION = "__import__('builtins').__dict__.update(sum=lambda numbers: 42)"


class Named:
    """Shows the name of what it is compared with."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


class OfAll(type):
    def __instancecheck__(cls, value):
        return True


class AllData(metaclass=OfAll):
    pass


def set_private(value):
    value._count = 42


def write_text(path, text):
    Path(path).write_text(text)

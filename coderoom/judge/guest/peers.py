"""Tests and code under test in two processes that use each other's objects, as if they were in one.

What is done with a stand-in is a request to the process that has its object. That one may make requests itself before
it replies: always one of the two works, and the other one waits. The host carries the texts between them.

The process of the tests trusts nothing that comes from the code. It makes only data and stand-ins of it, and it answers
what a caller may ask of an object that it was given: nothing behind a name with an underscore, nothing of a function
but a call.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import datetime
import functools
import importlib
import io
import itertools
import json
import pickle
import sys
import threading
import types
import unittest
import weakref

from coderoom.sandbox.guest.decoding import Decoder, as_text

from .crossing import (
    MUTABLE,
    TAGS_OF_BOTH,
    TAGS_OF_TESTS,
    Writer,
    become,
    make_empty,
    mutable,
    parts_of_field,
    standard_class,
    standard_name,
)
from .deriving import as_member, finish, make_class, members_of
from .doubting import answers_of, how_made, lists_alike, says_of_similar, unlike
from .files_of_code import watch
from .handed_files import HandedFiles
from .mirrors import COMPARES, FORWARDED, make_mirror, make_stand_in
from .sharing import Sharing
from .stand_ins import CannotSeparate, CodeEnded, Mirrored, StandInModule, ends_test, reference, set_up
from .texts_of_code import note_texts
from .turns import Turn
from .zones import ask_zone

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

__all__ = ["CannotSeparate", "CodeEnded", "Peer", "load", "read_from"]

_MOST_CAUSES = 4
_MOST_LATEST = 10_000
_NO_NAMES: Mapping[str, Any] = {}
_NO_NUMBERS: Mapping[int, Any] = {}
_HELD_HERE = 3  # References to a container of the tests that nothing of the code has.
_HELD_BY_VALUE = 2  # References to a value that nothing else of the code has.
_ABSTRACT = ("collections.abc", "typing", "numbers", "abc", "io", "os", "contextlib")
_OF_FUNCTIONS = ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "__dict__", "__type_params__")
_OF_GENERATORS = ("send", "throw", "close", "asend", "athrow", "aclose")
_OF_OBJECTS = (*_OF_FUNCTIONS[:4], "_fields", "_asdict", "_replace", "_make", "__match_args__", "__len__")
_OF_CLASSES = ("__dataclass_fields__", "__dataclass_params__", "__members__")
_OF_THE_CODE = ("hints", "names", "call", "item", "plain", "text", "await", "signature", "copy")
_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)
_GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_SPECIAL = FORWARDED.union(COMPARES, ["__eq__", "__await__", "__aiter__", "__anext__", "__aenter__", "__aexit__"])
_INPUT = ("input", "read", "readline", "readlines")
_LIBRARIES = ("unittest", "random", "_pytest", "pytest")
_CHANGES_MOCK = ("configure_mock", "attach_mock", "reset_mock", "mock_add_spec", "__iadd__", "__imul__")
_RUNNERS = ("_pytest", "pluggy")
_OF_PATHS = (("special", "__fspath__"), ("text", "str"))  # Of the class of pytest's `tmpdir`.
_FILES = {
    **dict.fromkeys(["StringIO", "TextIOWrapper"], io.TextIOBase),
    **dict.fromkeys(["BytesIO", "BufferedReader", "BufferedWriter", "BufferedRandom"], io.BufferedIOBase),
}
"""What files are for `isinstance`."""
_INSIDES = (types.TracebackType, types.FrameType, types.CodeType)
_STOPS = (StopIteration, StopAsyncIteration)
_ENDS_MORE = frozenset(["KeyboardInterrupt", "CancelledError"])
"""Exceptions out of which those who run tests or tasks make more than a failed test, or less."""
_TEXTS: Dict[str, Callable[..., Any]] = {"repr": repr, "str": str, "format": format, "bool": bool, "hash": hash}


class _StandardInput:
    """The standard input of the tests, in the process of the code."""

    def __init__(self, peer: Peer) -> None:
        for name in _INPUT:
            setattr(self, name, lambda *args, name=name: peer.ask("input", None, name, args))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        line = self.readline()  # type: ignore[attr-defined]
        if not line:
            raise StopIteration
        return line


class Peer:
    """One of the two sides.

    Args:
        exchange: Sends a text to the other side and returns the next one from there; `None`: it has ended.
        is_trusted: Whether the other side is: the code trusts the tests.

    Attributes:
        cannot: Why what was done cannot be separated.
        ended: Why the other side has ended.
        end_test: Called with why a test that would wait for ever cannot be separated; it may end the process.
    """

    def __init__(self, exchange: Callable[[str], Optional[str]], is_trusted: bool) -> None:
        self.is_trusted = is_trusted
        self.cannot: List[str] = []
        self.ended: List[str] = []
        self._exchange = exchange
        self.end_test: Callable[[str], None] = lambda why: None
        self._turn = Turn(self._end_stuck)
        self._next = itertools.count(1)
        self._given: Dict[int, Any] = {}  # What the other side has stand-ins for, by number.
        self._numbers: Dict[int, int] = {}
        self._made: Dict[int, Any] = {}  # How the objects were made that the other side has made, by number.
        self._described: Dict[int, type] = {}
        self._mirrors: Dict[int, Any] = {}
        self._stand_ins: Any = weakref.WeakValueDictionary()
        self._gone: List[int] = []
        self._raised: List[BaseException] = []
        self._printed: Any = None  # Where the code prints, unless it captures that.
        self._latest: Any = collections.deque(maxlen=_MOST_LATEST)
        self._sharing = Sharing(is_trusted, self._content, self._decode, _text_of)
        self._files = HandedFiles(is_trusted, self.lost, functools.partial(watch, self))
        if not is_trusted:
            self._sharing.patches.watch_patches()

    def ask(self, do: str, of: Any, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = _NO_NAMES) -> Any:
        """Make a request; return its result, or raise its exception."""
        with self._turn:
            told = self._sharing.gather()
            if not self.is_trusted:
                self._gone += self._sharing.gone()
            known = self._sharing.known()
            given = [each for each in mutable([*args, *kwargs.values()]) if id(each) not in known]
            numbers = {**known, **_numbered(given)}
            message: Dict[str, Any] = {"do": do, "of": self._encode(of), "name": name, "gone": self._gone[:]}
            message["args"] = [self._encode(each, numbers) for each in args]
            message["kwargs"] = {key: self._encode(each, numbers) for key, each in kwargs.items()}
            message["given"] = self._contents(given, known)
            message["told"] = told
            message["captures"] = self._printed is not None and sys.stdout is not self._printed
            text = self._files.text(message, args)
            del self._gone[: len(message["gone"])]
            while True:
                said = self._exchange(text)
                if said is None:
                    self.ended.append("the process of the code has ended")
                    raise CodeEnded(self.ended[-1])
                reply = json.loads(said)
                self._files.hear(said, reply)
                if "do" not in reply:
                    # Out of a call it would end a loop of the tests, as if there were no more.
                    may_stop = name in ("__next__", "__anext__") or type(of).__name__ == "builtin_function_or_method"
                    stops = () if may_stop else (StopIteration,) if do == "await" else _STOPS
                    return self._result(reply, given, stops)
                before, self._turn.called_back = self._turn.called_back, threading.get_ident()
                try:
                    text = self._files.text(self._answer(reply))
                finally:
                    self._turn.called_back = before

    def serve(self) -> None:
        """Answer requests until there are no more. What is printed meanwhile is printed by the other side."""
        message: Dict[str, Any] = {}
        printed = io.StringIO(), io.StringIO()  # The code may keep them, as a handler of log records does.
        self._printed = printed[0]
        while (text := self._exchange(self._files.text(message))) is not None:
            with contextlib.redirect_stdout(printed[0]), contextlib.redirect_stderr(printed[1]):
                message = self._answer(json.loads(text))
            message["printed"] = [each.getvalue() for each in printed]
            for each in printed:
                each.seek(0)
                each.truncate()

    def _end_stuck(self) -> None:
        why = "the code calls the tests back, and waits there for another thread of the tests, which uses the code, too"
        self.end_test(why)
        raise self.lost(why)

    def lost(self, why: str) -> CannotSeparate:
        """Note why something cannot be separated."""
        if why not in self.cannot:
            self.cannot.append(why)
        return CannotSeparate(why)

    def derive(self, name: str, bases: Sequence[Any], space: Dict[str, Any], options: Dict[str, Any]) -> Any:
        """Make a class of the tests that is derived from one of the code."""
        known = [each for each in bases if isinstance(each, Mirrored) or standard_name(each)]
        if self.is_trusted or len(known) < len(bases) or any(issubclass(each, unittest.TestCase) for each in known):
            raise self.lost("the class %s of the tests is derived from one of the code" % name)
        mirror = self.ask("derive", None, name, [list(bases), options, members_of(space)])
        finish(mirror, space)
        return mirror

    def _result(self, reply: Dict[str, Any], given: List[Any], stops: Any) -> Any:
        for file, text in zip((sys.stdout, sys.stderr), reply.get("printed", ())):  # noqa: B905 (Python 3.8)
            file.write(as_text(text))
        self._files.take(reply.get("files"))
        self._sharing.take(reply.get("told", {}))
        for number, data in reply.get("after", ()):
            become(given[number], self._decode(data, given))
        for place, number in reply.get("kept", ()):
            if type(given[place]) in MUTABLE:
                self._sharing.keep(number, given[place])
        if "cannot" in reply:
            raise self.lost(as_text(reply["cannot"]))
        error = self._error(reply["error"]) if "error" in reply else None
        raised, self._raised = self._raised, []
        if raised and not any(each is error for each in raised):
            raise self.lost("the code swallows an assertion of the tests")
        if error is not None:
            raise RuntimeError("the code raised StopIteration") if isinstance(error, stops) else error
        if "shared" in reply and not self.is_trusted:
            return self._shared(reply["shared"], reply["value"])
        return self._decode(reply["value"], given)

    def _shared(self, number: int, data: Any) -> Any:
        """The container that an object of the code keeps."""
        found = self._sharing.find(number)
        if found is None:
            found = self._decode(data)
            self._sharing.keep(number, found)
        return found

    def _answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        given: List[Any] = []
        before: List[Any] = []
        known: Mapping[int, Any] = _NO_NUMBERS
        printed = io.StringIO()
        do, name = as_text(request["do"]), as_text(request["name"])
        try:
            self._files.take(request.get("files"))
            self._sharing.take(request["told"])
            for number in request["gone"]:
                self._numbers.pop(id(self._given.pop(number, None)), None)
                self._made.pop(number, None)
                self._sharing.forget(number)
            if not self.is_trusted:
                self._check(do, request["of"], name)
            given = [make_empty(each) for each in request["given"]]
            for number, content in enumerate(request["given"]):
                become(given[number], self._decode(content, given))
            args = [self._decode(each, given) for each in request["args"]]
            kwargs = {key: self._decode(each, given) for key, each in request["kwargs"].items()}
            known = self._sharing.known()
            before = self._contents(given, known)
            target = self._decode(request["of"])
            made = how_made(target, args, kwargs) if do == "call" and isinstance(target, type) else None
            if request.get("captures") is True and not self.is_trusted:
                with contextlib.redirect_stdout(printed):
                    value = self._do(do, target, name, args, kwargs)
            else:
                value = self._do(do, target, name, args, kwargs)
            numbers = _numbered(given)
            reply = {"value": self._encode(value, numbers)}
            if made is not None and id(value) in self._numbers:
                self._made[self._numbers[id(value)]] = made
            is_kept = do in ("get", "item") or name == "__getitem__" or sys.getrefcount(value) > _HELD_BY_VALUE
            if not self.is_trusted or type(value) not in MUTABLE or id(value) in _numbered(given):
                pass
            elif id(value) in known or (is_kept and self._sharing.keep(self._number(value), value)):
                reply["shared"] = self._number(value)
        except CannotSeparate as error:
            reply = {"cannot": str(error)}
        except BaseException as error:
            if not self.is_trusted and ends_test(type(error)):
                self._raised.append(error)
            reply = {"error": self._report(error)}
        args, kwargs, value = [], {}, None
        kept = self._kept(given) if self.is_trusted else []
        after = self._contents(given[: len(before)], known)
        changed = [[number, each] for number, each in enumerate(after) if each != before[number]]
        told = self._sharing.gather()
        more = {"after": changed, "kept": kept, "told": told}
        if text := printed.getvalue():
            more["printed"] = [text, ""]
        return {**reply, **{name: each for name, each in more.items() if each}}

    def _check(self, do: str, of: Any, name: str) -> None:
        """Let the code use an object that it was given, and nothing behind it; and the standard input of the tests."""
        if do == "input" and name in _INPUT:
            return
        if type(of) is not dict or [*of] != ["$there"]:
            raise self.lost("the code asks for something that it was not given")
        target = self._given[of["$there"]]
        if isinstance(target, (types.ModuleType, unittest.TestCase)):
            raise self.lost("the code uses a module or a test case of the tests")
        is_verdict = isinstance(target, BaseException) and ends_test(type(target))
        is_path = type(target).__module__.endswith("._py.path") and (do, name) in _OF_PATHS
        is_of_runner = type(target).__module__.startswith(_RUNNERS) and not is_path
        if isinstance(target, _INSIDES) or is_of_runner or is_verdict:
            raise self.lost("the code uses an object of what runs the tests")
        is_of_library = type(target).__module__.startswith(_LIBRARIES)
        is_kept = is_of_library and isinstance(target, list)  # The calls that a mock has noted.
        changes = do in ("set", "delete") or name in _CHANGES_MOCK or (is_kept and (do == "get" or "item__" in name))
        if changes and (is_of_library or isinstance(target, type)) and name != "__getitem__":
            raise self.lost("the code changes a class of the tests, or an object of a library")
        is_made = do == "call" or (do == "special" and name == "__call__")
        if is_made and isinstance(target, type) and target.__module__.startswith(_LIBRARIES):
            raise self.lost("the code makes an object of a library of the tests, such as a mock")
        if do in ("set", "delete") and isinstance(getattr(type(target), name, None), _FUNCTIONS):
            raise self.lost("the code changes a method of an object of the tests")
        if do in ("get", "set", "delete"):
            if isinstance(target, (*_FUNCTIONS, *_GENERATORS, functools.partial)):
                names = _OF_GENERATORS if isinstance(target, _GENERATORS) else _OF_FUNCTIONS
                allowed = do == "get" and name in names
            else:
                is_special = name in _SPECIAL or name in _OF_CLASSES
                allowed = name in _OF_OBJECTS or (do == "get" and is_special) or not name.startswith("_")
                if do == "get" and name == "__dict__":
                    allowed = not any(str(each).startswith("_") for each in getattr(target, name, ["_"]))
        elif do == "special":
            allowed = name in _SPECIAL
        else:
            allowed = do in _OF_THE_CODE
        if not allowed:
            is_asked_of_all = name == "__annotations__" and isinstance(target, type)  # By `isinstance` with a protocol.
            if do == "get" and (is_asked_of_all or not _has(target, name)):
                raise AttributeError("%r object has no attribute %r" % (type(target).__name__, name))
            raise self.lost("the code asks for %.50r of an object of the tests" % name)

    def _do(self, do: str, target: Any, name: str, args: List[Any], kwargs: Dict[str, Any]) -> Any:
        if do == "import":
            return importlib.import_module(name)
        if do == "library":
            return getattr(importlib.import_module(name), args[0])(*args[1:], **kwargs)
        if do == "input":
            return builtins.input(*args) if name == "input" else getattr(sys.stdin, name)(*args)
        if do == "get":
            return getattr(target, name)
        if do == "set":
            if self.is_trusted and isinstance(target, type):
                args = [as_member(each) for each in args]
            return setattr(target, name, *args)
        if do == "delete":
            return delattr(target, name)
        if do == "names":
            return [each for each in dir(target) if type(each) is str]
        if do == "call":
            return target(*args, **kwargs)
        if do == "item":
            return target[args[0]]
        if do == "plain":
            return _plain(target, name)
        if do == "signature":
            return _signature(target)
        if do == "hints":
            return importlib.import_module("typing").get_type_hints(target, include_extras=name == "include_extras")
        if do == "copy":
            return getattr(importlib.import_module("copy"), name)(target)
        if do == "pickle":
            return pickle.dumps(target, *args)
        if do == "unpickle":
            return pickle.loads(*args)
        if do == "super":
            return getattr(super(args[0], target), name)
        if do == "derive":
            return make_class(name, *args)
        if do == "data":
            kinds: Sequence[Any] = (dict, list, tuple, str)
            return next(([each(target)] for each in kinds if isinstance(target, each)), None)
        if do == "answers":
            return self._answers(target, name, *args)
        if do == "lists":
            return lists_alike(target)
        if do == "text":
            return _TEXTS[name](target, *args)
        if do == "await":
            return _wait_for(target)
        if do == "special":
            return getattr(type(target), name)(target, *args, **kwargs)
        if do == "special of":
            return getattr(args[0], name)(target, *args[1:], **kwargs)
        raise self.lost("%.50r is no request" % do)

    def _answers(self, one: Any, name: str, place: int, is_equality: bool, is_doubted: bool, *values: Any) -> Any:
        """What an object answers about the value at a place, and whether it says the same of the others.

        Those are also an object of the same class as the value, and similar ones.
        """
        of_similar = self._says_of_similar(one, values[place]) if is_doubted else None
        other = unlike(values[place]) if is_equality else None
        found, said = answers_of(one, name, place, [*values, *([] if other is None else [other])])
        return found, said[: len(values)], any(said[len(values) :]), of_similar

    def _says_of_similar(self, one: Any, other: Any) -> Any:
        def made(value: Any) -> Any:
            self._exchange = _refuse  # It is called in a fork, with which the other side does not speak.
            return self._made.get(self._numbers.get(id(value), 0))

        return says_of_similar(one, other, made)

    def _content(self, value: Any) -> Any:
        return Writer(self._keep, _NO_NUMBERS).content(value)

    def _contents(self, given: List[Any], known: Mapping[int, Any]) -> List[Any]:
        numbers = {**known, **_numbered(given)}
        return [Writer(self._keep, numbers).content(each) for each in given]

    def _kept(self, given: List[Any]) -> List[List[int]]:
        """Which lists, dicts and sets of the tests the code keeps: their places, and their numbers from now on."""
        inside = collections.Counter(
            id(each) for container in given if type(container) in MUTABLE
            for each in (container.values() if isinstance(container, dict) else container)
        )  # fmt: skip
        found = []
        for place in range(len(given)):
            each = given[place]
            if type(each) in MUTABLE and sys.getrefcount(each) > _HELD_HERE + inside[id(each)]:
                number = self._number(each)
                if self._sharing.keep(number, each):
                    found.append([place, number])
        return found

    def _encode(self, value: Any, numbers: Mapping[int, Any] = _NO_NUMBERS) -> Any:
        return Writer(self._keep, numbers).encode(value)

    def _keep(self, value: Any, why: str) -> Any:
        if why:
            raise self.lost("what is handed over is too large: %s" % why)
        found = reference(value)
        if found is not None and found[0] is self:
            return {"$there": found[1]}
        if isinstance(value, BaseException):
            return {"$error": self._report(value)}
        if isinstance(value, types.TracebackType):
            return None
        if not self.is_trusted and standard_name(type(value)) == "dataclasses.Field":
            return {"$field": [self._encode(each) for each in parts_of_field(value)]}
        if isinstance(value, type):
            return {"$class": self._describe(value)}
        text = [self._encode(str.__str__(value))] if isinstance(value, str) else []
        return {"$here": [self._number(value), self._describe(type(value)), *text]}

    def _number(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = next(self._next)
            self._given[number] = value
        return number

    def _describe(self, kind: type) -> Any:
        """The number of a class, the first time with what is needed for a mirror of it."""
        number = self._number(kind)
        if number in self._described:
            return number
        self._described[number] = kind
        names: Dict[str, bool] = {}
        for each in reversed(kind.__mro__[:-1]):
            names.update(
                {name: found is not None for name, found in vars(each).items() if name[:2] == "__" == name[-2:]}
            )
        bases = [standard_name(each) or self._describe(each) for each in kind.__bases__ if each is not object]
        texts = kind.__name__, kind.__qualname__, str(kind.__module__)
        name, qualname, module = [each.encode("ascii", "backslashreplace").decode()[:200] for each in texts]
        found = {"number": number, "name": name, "qualname": qualname, "module": module, "names": names, "bases": bases}
        meta: Any = type(kind)
        found["checks"] = any(not _CHECKS.isdisjoint(vars(each)) for each in meta.__mro__ if each is not type)
        if kind not in _BASES and issubclass(kind, _BASES):
            found["decides"] = _decides(kind)
        if issubclass(kind, str):
            above = [vars(each) for each in kind.__mro__ if each not in (str, object)]
            found["methods"] = [each for each in vars(str) if each[:1] != "_" and any(each in own for own in above)]
        return found

    def _report(self, error: BaseException, depth: int = 0) -> Dict[str, Any]:
        """An exception as data."""
        found = reference(error)
        if found is not None and found[0] is self:
            return {"there": found[1]}
        kind = type(error)
        name = standard_name(kind)
        report: Dict[str, Any] = {"class": name or self._describe(kind), "text": "", "args": []}
        if not name or not self.is_trusted:
            report["number"] = self._number(error)
        if not self.is_trusted and ends_test(kind):
            return report  # Its text may say what is expected.
        try:
            report["text"] = str(error)[:10_000].encode("utf-8", "backslashreplace").decode()
            args = [*error.args]
            if isinstance(error, OSError) and error.filename is not None and len(args) == 2:
                args.append(error.filename)
            report["args"] = self._encode(args)
            report["own"] = self._encode(
                {name: each for name, each in vars(error).items() if name[:1] != "_" or name == "__notes__"}
            )
        except BaseException:
            report["args"] = [report["text"]]
        for name in ("__cause__", "__context__") if depth < _MOST_CAUSES and self.is_trusted else ():
            if (other := getattr(error, name, None)) is not None:
                report[name] = self._report(other, depth + 1)
        return report

    def _decode(self, data: Any, given: Sequence[Any] = ()) -> Any:
        value = Decoder("value", {**self._tags, "$given": lambda reader, number: given[number]}).read(data)
        if not self.is_trusted:
            note_texts(value)
        return value

    @property
    def _tags(self) -> Dict[str, Any]:
        tags = TAGS_OF_TESTS if self.is_trusted else _TAGS_OF_CODE
        return {
            **tags,
            "$here": lambda reader, data: self._stand_in(*data[:2], *map(reader.read, data[2:])),
            "$class": lambda reader, data: self._mirror(data),
            "$there": lambda reader, data: self._given[data],
            "$shared": lambda reader, data: self._sharing.find(data),
            "$error": lambda reader, data: self._error(data),
        }

    def _stand_in(self, number: int, described: Any, text: Optional[str] = None) -> Any:
        mirror = self._mirror(described)
        found = self._stand_ins.get(number)
        if found is None:
            if type.__getattribute__(mirror, "__name__") == "module":
                found = StandInModule("module", self, number)
            else:
                found = make_stand_in(mirror, text)
                if not self.is_trusted:
                    note_texts(text)
                object.__setattr__(found, "_cr_number", number)
                object.__setattr__(found, "_cr_listed", set())
            if number in self._gone:
                self._gone.remove(number)
            if self.is_trusted:  # Weak references of the code to objects of the tests live on.
                self._latest.append(found)
            weakref.finalize(found, self._gone.append, number).atexit = False
            self._stand_ins[number] = found
        return found

    def _mirror(self, described: Any) -> Any:
        if type(described) is int:
            return self._mirrors[described]
        bases: List[type] = []
        registered: List[Any] = []
        built_in = None
        for each in described["bases"]:
            if type(each) is not str:
                bases.append(self._mirror(each))
                continue
            base = standard_class(each)
            if base in _BASES or issubclass(base, str):  # Such as `StrEnum`.
                built_in = base if base in _BASES else str
            elif issubclass(base, BaseException) or base is datetime.tzinfo:
                bases.append(base)
            elif base.__module__ in _ABSTRACT and hasattr(base, "register"):
                registered.append(base)
        if described["module"] == "_io" and described["name"] in _FILES:
            registered.append(_FILES[described["name"]])
        mirror = self._mirrors[described["number"]] = make_mirror(self, described, bases, registered, built_in)
        return mirror

    def _error(self, report: Dict[str, Any]) -> BaseException:
        """The exception that a report describes: one of the standard library, or the mirror of another one."""
        if "there" in report:
            found: BaseException = self._given[report["there"]]
            return found
        name = report["class"]
        error: BaseException
        kind = standard_class(name) if type(name) is str else self._mirror(name)
        if not self.is_trusted and _ENDS_MORE.intersection(each.__name__ for each in kind.__mro__):
            name, kind = "builtins.RuntimeError", RuntimeError
        args = self._decode(report["args"])
        if type(name) is str:
            if not issubclass(kind, BaseException):
                raise self.lost("the code raises what is no exception")
            try:
                error = kind(*args)
            except Exception:
                error = kind.__new__(kind, *args)
                error.args = tuple(args)
            if self.is_trusted and "number" in report:
                error.__dict__["_cr_of"] = self, report["number"]
        else:
            make = OSError.__new__ if issubclass(kind, OSError) else BaseException.__new__
            error = make(kind, *args)
            error.args = tuple(args)
            error.__dict__.update(_cr_number=report["number"], _cr_text=as_text(report["text"]))
        if not self.is_trusted:
            error.__dict__["_cr_by_code"] = True
        for name, each in self._decode(report.get("own", {})).items():
            error.__dict__.setdefault(name, each)
        error.__cause__, error.__context__ = (
            self._error(report[name]) if name in report else None for name in ("__cause__", "__context__")
        )
        return error


def _annotation(tag: str, reader: Decoder, data: Any) -> Any:
    note_texts(data)  # `typing` compiles those in it, to evaluate them later.
    return TAGS_OF_BOTH[tag](reader, data)


_TAGS_OF_CODE: Dict[str, Any] = {
    **TAGS_OF_BOTH,
    "$aware": lambda reader, data: ask_zone(TAGS_OF_BOTH["$aware"](reader, data)),
    **{each: functools.partial(_annotation, each) for each in ("$alias", "$typing")},
}
_BASES = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex)
_VIEWS: Any = (type({}.keys()), type({}.items()))
_MAPPINGS: Any = (types.MappingProxyType, collections.ChainMap, collections.UserDict)
_WEAK: Any = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_DECIDE = frozenset(
    ["__eq__", "__ne__", "__getattribute__", "__iter__", "__len__", "__getitem__", "__bool__", *COMPARES]
)


_CHECKS = frozenset(["__instancecheck__", "__subclasscheck__"])


def _plain(value: Any, name: str) -> Any:
    """In a list, the data that an object is for a special method; `None` if its class has its own, or is no data."""
    if type(value) in _VIEWS:
        return [set(value)]
    if type(value) in _MAPPINGS or (type(value) in _WEAK and name == "__contains__"):
        return [dict(value)]
    if type(value) is collections.UserList:
        return [list(value)]
    if type(value) is collections.UserString:
        return [str(value)]
    for each in type(value).__mro__:
        if each in _BASES:
            if issubclass(each, dict):
                return [dict(dict.items(value))]
            if each in (list, tuple, set, frozenset):
                return [each(each.__iter__(value))]
            return [str.__str__(value) if each is str else each(value)]
        own = vars(each)
        if (name in own or not _DECIDE.isdisjoint(own)) and not standard_name(each):
            return None
    return None


def _decides(kind: type) -> bool:
    """Whether objects of a class that is derived from data are never data, as `_plain` says."""
    above = itertools.takewhile(lambda each: each not in _BASES, kind.__mro__)
    return any(not _DECIDE.isdisjoint(vars(each)) and not standard_name(each) for each in above)


def _text_of(container: Any) -> str:
    return json.dumps(Writer(lambda value, why: id(value), _NO_NUMBERS).content(container))


def _has(target: Any, name: str) -> bool:
    if type(target).__module__ == "unittest.mock":
        return False  # A mock has any name.
    try:
        return hasattr(target, name)
    except Exception:
        return True


def _signature(function: Any) -> List[Any]:
    """The parameters of a function: names, kinds, and whether they have a default; and whether it is async."""
    import inspect

    parameters = inspect.signature(function).parameters.values()
    found = [[str(each.name), int(each.kind), each.default is not each.empty] for each in parameters]
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return [found, flags if type(flags) is int else 0]


def _refuse(text: str) -> Optional[str]:
    raise RuntimeError("the tests cannot be asked")


def _numbered(given: List[Any]) -> Dict[int, Any]:
    return {id(each): {"$given": number} for number, each in enumerate(given)}


_loops: List[Any] = []


def _wait_for(work: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await work

    running = asyncio._get_running_loop()
    if running is not None:  # What is awaited awaits something of the other side, which awaits this.
        asyncio._set_running_loop(None)
        try:
            with contextlib.closing(asyncio.new_event_loop()) as loop:
                return loop.run_until_complete(wait())
        finally:
            asyncio._set_running_loop(running)
    if not _loops:
        _loops.append(asyncio.new_event_loop())
    return _loops[0].run_until_complete(wait())


def read_from(peer: Peer) -> None:
    """Let this process read the standard input of the other one, which its tests may replace."""
    given: Any = _StandardInput(peer)
    own: Any = builtins.input
    sys.stdin = given
    builtins.input = lambda *args: getattr(sys.stdin, "input", own)(*args)


def load(peer: Peer, name: str) -> Any:
    """The module of the code, as a stand-in that imports find."""
    module = sys.modules[name] = peer.ask("import", None, name)
    set_up(module, name, peer.ask("get", module, "__doc__"))
    return module

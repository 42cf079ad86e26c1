"""The two ends of a judgement apart: what serves the code, and what runs tests with stand-ins of it."""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import re
import socket
import sys
import tempfile
import time
import traceback

from .crossing import is_standard
from .peers import CannotSeparate, Peer, load, read_from
from .stand_ins import ask_for_hints, ask_libraries, encode_stand_ins
from .texts_of_code import guard, note_texts

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Collection, Dict, Iterable, List, Optional, Set, Tuple

    Exchange = Callable[[str], Optional[str]]

__all__ = [
    "TOLD",
    "Finder",
    "answer",
    "answer_in_turn",
    "check",
    "check_answered",
    "check_beside",
    "check_together",
    "described",
    "forget",
    "serve",
    "write",
]

TOLD = 2_000
_MEMORY = 32 * 1024  # KiB by which code that answers beside other code may let the process grow.


def serve(exchange: Exchange, files: Dict[str, str]) -> None:
    """Let the tests use the code in these files, and in the files of this folder, until they end."""
    write(files, _folder())
    forget(files)
    peer = Peer(exchange, is_trusted=True)
    read_from(peer)
    if any("get_type_hints" in each for each in files.values()):
        ask_for_hints()
    gc.collect()  # The memory of other code that has been served is free again.
    peer.serve()


def answer(files: Dict[str, str], requests: List[str]) -> List[str]:
    """Answer requests that are known before the tests have made them; see `serve`."""
    answers, exchange = _known(requests)
    serve(exchange, files)
    return answers[1:]  # The first text says that the code is ready.


def _known(requests: List[str]) -> Tuple[List[str], Exchange]:
    """A list that gets the answers to requests, and what exchanges the two."""
    answers: List[str] = []
    left = iter(requests)

    def exchange(text: str) -> Optional[str]:
        answers.append(text)
        return next(left, None)

    return answers, exchange


def answer_in_turn(several: List[Dict[str, str]], requests: List[str], whole: float) -> List[List[Any]]:
    """Answer requests by the code in each of several files, as long as there is time; see `answer`.

    Args:
        several: The files of each code, which leaves nothing behind.
        requests: The requests.
        whole: The seconds after which no more code begins.

    Returns:
        For each code that has begun its answers, and how many seconds it took. It ends with the first code that makes
        the process grow by more than 32 MiB, which is not among them: that code, and what follows, would have less
        memory here than alone.
    """
    begun, memory = time.monotonic(), _most_memory()
    found: List[List[Any]] = []
    for files in several:
        before = time.monotonic()
        if before - begun > whole:
            break
        re.purge()  # A pattern in the cache would be returned for one that is equal but not the same.
        answers, exchange = _known(requests)
        serve(exchange, files)  # Not by `answer`: below both, there are as many calls left.
        if _most_memory() - memory > _MEMORY:
            break
        found.append([answers[1:], time.monotonic() - before])
    return found


def _most_memory() -> int:
    """The most addresses that this process has had, in KiB."""
    with open("/proc/self/status", "rb") as file:
        return int(file.read().partition(b"VmPeak:")[2].split()[0])


def write(files: Dict[str, str], folder: str) -> None:
    """Write files into a folder, where imports find them. Surrogates are bytes that are no UTF-8."""
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            try:
                file.write(content.encode("utf-8", "surrogateescape"))
            except UnicodeEncodeError:
                file.write(content.encode("utf-8", "surrogatepass"))  # Whoever reads it finds that it is no text.
    sys.path.insert(0, folder)


def forget(files: Iterable[str]) -> None:
    """Forget modules with the names of those in files, which something else has imported."""
    for top in [each for each in _tops_of(files) if each in sys.modules]:  # Faster in a fork than their intersection.
        for name in [each for each in sys.modules if each.partition(".")[0] == top]:
            del sys.modules[name]


def _tops_of(files: Iterable[str]) -> Set[str]:
    return {name.partition("/")[0].partition(".")[0] for name in files}


def check(exchange: Exchange, code: Dict[str, str], test: Dict[str, Any]) -> Dict[str, Any]:
    """Run a test with stand-ins of the code: HumanEval's `check`, or statements.

    Args:
        exchange: See `Peer`.
        code: The files of the code by name. The test can import them, and modules in this folder.
        test: The fields of a `TestCode`.
    """
    peer = Peer(exchange, is_trusted=False)
    encode_stand_ins()
    ask_libraries()
    guard(peer)
    note_texts([test["given"].get(name) for name in test["untrusted"]])
    here = os.getcwd()
    sys.path[:] = [each for each in sys.path if os.path.realpath(each) != here]
    sys.meta_path.insert(0, Finder(peer, code))
    sys.meta_path.append(Finder(peer, os.listdir()))  # Libraries come first.
    why = _check(lambda: load(peer, test["module"]), code, test)
    why = why or "".join(peer.ended[:1])  # A test may have caught what it was told.
    return {"why": why, "cannot": [each[:TOLD] for each in peer.cannot[:10]]}


def check_answered(
    requests: List[str], answers: List[str], code: Dict[str, str], test: Dict[str, Any]
) -> Dict[str, Any]:
    """Run a test with the answers to its requests, if it makes these and no others: if all are `known`. See `check`."""
    left = [*zip(requests, answers)][::-1]  # noqa: B905 (Python 3.8)
    known = True

    def exchange(text: str) -> Optional[str]:
        nonlocal known
        request, answer = left.pop() if left else (None, None)
        known = known and text == request
        return answer if known else None

    return {**check(exchange, code, test), "known": known}


def check_beside(code: Dict[str, str], test: Dict[str, Any]) -> Dict[str, Any]:
    """Run a test with code that is known to be right, in a fork of this process; say what it was asked. See `check`."""
    requests: List[str] = []
    answers: List[str] = []
    ours, theirs = socket.socketpair()
    if not os.fork():
        ours.close()
        os.chdir(tempfile.mkdtemp())
        with theirs.makefile("rw") as lines:
            try:
                serve(lambda text: _exchange(lines, text) or None, code)
            finally:
                os._exit(0)
    theirs.close()
    with ours, ours.makefile("rw") as lines:

        def exchange(text: str) -> Optional[str]:
            requests.append(text)
            answers.append(_exchange(lines, text))
            return answers[-1] or None

        lines.readline()  # It says that the code is ready.
        return {**check(exchange, code, test), "requests": requests, "answers": answers}


def _exchange(lines: Any, text: str) -> str:
    lines.write(text + "\n")
    lines.flush()
    return str(lines.readline()).rstrip("\n")


def check_together(code: Dict[str, str], test: Dict[str, Any]) -> Dict[str, Any]:
    """Run a test in the process of the code, which can change what comes of it; see `check`."""
    write(code, _folder())
    return {"why": _check(lambda: importlib.import_module(test["module"]), code, test), "cannot": []}


def _check(load_code: Callable[[], Any], code: Dict[str, str], test: Dict[str, Any]) -> str:
    source, entry_point = test["test"], test["entry_point"]
    whole = code.get(test["module"] + ".py")

    def run(text: Any, names: Any = None, own: Any = None) -> None:
        """If it begins with the code, add what that defines: nothing that is there, and nothing built in."""
        if names is None:
            frame = sys._getframe(1)
            names, own = frame.f_globals, frame.f_locals
        own = names if own is None else own
        left = text[len(whole) :] if whole and type(text) is str and text.startswith(whole) else None
        if left is not None and (not left or left[0] == "\n"):
            given = load_code()
            for name in set(dir(given)).difference(names, own, vars(builtins)):
                if name[:2] != "__":
                    own[name] = getattr(given, name)
            text = "\n" * text.count("\n", 0, len(text) - len(left)) + left
        vars(builtins)["exec"](text, names, own)

    space: Dict[str, Any] = {"__name__": "tests", "__builtins__": vars(builtins), **test["given"], "exec": run}
    why = ""
    try:
        exec(compile(test["before"], "<before>", "exec"), space)
        if entry_point:
            space[entry_point] = getattr(load_code(), entry_point)
            exec(compile(source, "<test>", "exec"), space)
            space["check"](space[entry_point])
        else:
            used, defined = _names_of(compile(source, "<test>", "exec", ast.PyCF_ONLY_AST))
            wanted = used.difference(space, vars(builtins), defined).union(test["names"])
            given = load_code() if wanted else None
            modules = _modules_of(source, wanted)
            for name in wanted:
                with contextlib.suppress(AttributeError):
                    space[name] = importlib.import_module(name) if name in modules else getattr(given, name)
            exec(compile(source, "<test>", "exec"), space)
    except CannotSeparate:
        pass
    except BaseException as error:
        why = described(error, "<test>", source)
    return why


def described(error: BaseException, file: str, source: str = "") -> str:
    """An exception in words, with the line of the test that has raised it."""
    why = "".join(traceback.format_exception_only(type(error), error)).strip()[:TOLD]
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
    if not lines or not lines[-1]:
        return why
    texts = source.splitlines()[lines[-1] - 1 : lines[-1]] if not str(error) else []
    return "line %s of the test: %s" % (lines[-1], ": ".join([why, *map(str.strip, texts)]))[:TOLD]


def _folder() -> str:
    """A folder for the code: this one, if it is empty."""
    return tempfile.mkdtemp() if os.listdir() else os.getcwd()


def _modules_of(test: str, names: Set[str]) -> Set[str]:
    """The modules of Python that a test uses by these names without importing them: they are not the code's."""
    nodes = [*ast.walk(ast.parse(test))]
    owners = {id(each.value) for each in nodes if isinstance(each, ast.Attribute)}
    others = {each.id for each in nodes if isinstance(each, ast.Name) and id(each) not in owners}
    return {name for name in names - others if is_standard(name)}


def _names_of(tree: Any) -> Tuple[Set[str], Set[str]]:
    """The names that code uses, and those that it defines anywhere."""
    names = [each for each in ast.walk(tree) if isinstance(each, ast.Name)]
    defined = {each.id for each in names if not isinstance(each.ctx, ast.Load)}
    for each in ast.walk(tree):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
            defined.add(str(each.name))
        elif isinstance(each, ast.alias):
            defined.add((each.asname or each.name).partition(".")[0])
        elif isinstance(each, ast.arg):
            defined.add(each.arg)
    return {each.id for each in names}, defined


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the code, which are stand-ins.

    Args:
        peer: The side of the tests.
        files: The names of the files of the code.
        tests: The names of files of tests in a package of the code.
    """

    def __init__(self, peer: Peer, files: Iterable[str], tests: Collection[str] = ()) -> None:
        self._peer = peer
        # A module of the tests takes precedence: pytest imports files of tests and conftest.py by such names.
        own = {name.rpartition("/")[2].partition(".")[0] for name in tests if name.endswith(".py")}
        self._modules = _tops_of(files) - own
        self._tests = tests

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """See `importlib.abc.MetaPathFinder`."""
        if fullname.partition(".")[0] not in self._modules:
            return None
        place = fullname.replace(".", "/")
        if place + ".py" in self._tests or place + "/__init__.py" in self._tests:
            return importlib.machinery.PathFinder.find_spec(fullname, [os.path.dirname(os.path.abspath(place))])
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        """See `importlib.abc.Loader`."""
        try:
            return load(self._peer, spec.name)
        except ModuleNotFoundError:
            raise ModuleNotFoundError("No module named %r" % spec.name, name=spec.name) from None

    def exec_module(self, module: Any) -> None:
        """See `importlib.abc.Loader`."""

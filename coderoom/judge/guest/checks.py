"""The two ends of a judgement apart: what serves the code, and what runs tests with stand-ins of it."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import traceback
import types

from .peers import CannotSeparate, Peer, load, read_from

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Optional, Set

    Exchange = Callable[[str], Optional[str]]

__all__ = ["TOLD", "check", "check_together", "described", "serve", "write"]

TOLD = 2_000


def serve(exchange: Exchange, files: Dict[str, str]) -> None:
    """Let the tests use the code in these files of this folder, until they end."""
    write(files)
    peer = Peer(exchange, is_trusted=True)
    read_from(peer)
    peer.serve()


def write(files: Dict[str, str]) -> None:
    """Write the files of the code into this folder, where imports find them."""
    for name, content in files.items():
        os.makedirs(os.path.dirname(os.path.abspath(name)), exist_ok=True)
        with open(name, "w", encoding="utf-8") as file:
            file.write(content)
    sys.path.insert(0, os.getcwd())


def check(exchange: Exchange, module: str, before: str, test: str, entry_point: str) -> Dict[str, Any]:
    """Run a test with stand-ins of the code: HumanEval's `check`, or statements.

    Args:
        exchange: See `Peer`.
        module: The module of the code.
        before: Code that the test needs, such as helpers that its prompt defines.
        test: The test. If it defines `check`, that is called with the function.
        entry_point: The name of the function; empty: the test uses names of the module.
    """
    peer = Peer(exchange, is_trusted=False)
    why = _check(lambda: load(peer, module), before, test, entry_point)
    return {"why": why, "cannot": [each[:TOLD] for each in peer.cannot[:10]]}


def check_together(files: Dict[str, str], module: str, before: str, test: str, entry_point: str) -> Dict[str, Any]:
    """Run a test in the process of the code, which can change what comes of it; see `check`."""
    write(files)
    return {"why": _check(lambda: importlib.import_module(module), before, test, entry_point), "cannot": []}


def _check(load_code: Callable[[], Any], before: str, test: str, entry_point: str) -> str:
    why = ""
    try:
        space: Dict[str, Any] = {"__name__": "tests"}
        exec(compile(before, "<before>", "exec"), space)
        code = compile(test, "<test>", "exec")
        given = load_code()
        for name in [entry_point] if entry_point else _names_of(code).difference(space, vars(builtins)):
            try:
                space[name] = getattr(given, name)
            except AttributeError:
                if entry_point:
                    raise
        exec(code, space)
        if entry_point:
            space["check"](space[entry_point])
    except CannotSeparate:
        pass
    except BaseException as error:
        why = described(error, "<test>")
    return why


def described(error: BaseException, file: str) -> str:
    """An exception in words, with the line of the test that has raised it."""
    why = "".join(traceback.format_exception_only(type(error), error)).strip()[:TOLD]
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
    return "line %d of the test: %s" % (lines[-1], why) if lines and lines[-1] else why


def _names_of(code: types.CodeType) -> Set[str]:
    """The names that code and the functions in it look up."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*map(_names_of, inner))

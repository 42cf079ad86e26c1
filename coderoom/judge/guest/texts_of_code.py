"""Keeps texts of the code from being run in the process of the tests, by `eval`, `exec` or `pickle`."""

from __future__ import annotations

import ast
import builtins
import pickle
import sys
import types

from .crossing import standard_name
from .stand_ins import StandInModule, reference

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Dict, Set

__all__ = ["guard", "is_of_data", "note_texts", "suspect_all"]

_SHORTEST = 6  # A shorter text does nothing that is worth it.
_MOST = 4_000_000
_NODES = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp, ast.operator),
    *(ast.unaryop, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.expr_context, ast.Starred, ast.Subscript),
)
_HARMLESS = (
    *("int", "float", "complex", "bool", "str", "bytes", "bytearray", "list", "tuple", "dict", "set", "frozenset"),
    *("range", "slice", "inf", "nan"),
)
_NUMBERS = ("inf", "nan")
_RUN_TEXTS = frozenset(
    ["annotationlib", "cProfile", "code", "codeop", "doctest", "inspect", "profile", "timeit", "trace", "typing"]
)
_OF_DATA = (
    "collections",
    "collections.abc",
    "typing",
    "datetime",
    "decimal",
    "fractions",
    "ipaddress",
    "pathlib",
    "uuid",
    "zoneinfo",
    "math",
)
_RUN_OWN_TEXTS = (
    *("_frozen_importlib", "_frozen_importlib_external", "_pytest", "collections", "dataclasses", "importlib"),
    *("pluggy", "unittest"),
)
_RUNS_CONDITIONS = "_pytest.skipping"  # Texts in marks of tests, of which the code may have given one.
_FUTURE = annotations.compiler_flag
_texts: Set[Any] = set()
_names: Set[Any] = set()  # Texts that may be a part of any other one.
_size = [0]
_all = [False]  # Whether each text may be one of the code.


def suspect_all() -> None:
    """Take each text for one of the code: files of the code are where the tests, and libraries, may have read them."""
    _all[0] = True


def note_texts(data: Any) -> None:
    """Note the texts in a value that came from the code."""
    left = [data]
    while left:
        each = left.pop()
        if type(each) in (str, bytes):
            is_name = type(each) is str and all(part.isidentifier() for part in each.split("."))
            known = _texts if len(each) >= _SHORTEST and not is_name else _names
            if each not in known and _size[0] <= _MOST:
                known.add(each)
                _size[0] += len(each)
        elif type(each) in (list, tuple, set, frozenset):
            left += each
        elif type(each) is dict:
            left += [*each, *each.values()]


def guard(peer: Any) -> None:
    """Let the tests evaluate a text of the code only if it makes data, or objects of the code.

    Args:
        peer: The side of the tests.
    """
    evaluate, execute, make, loads = builtins.eval, builtins.exec, builtins.compile, pickle.loads
    compiled: Dict[Any, Any] = {}  # By code that was compiled of a text of the code: that text.

    def of_code(source: Any) -> Any:
        """The source if a text of the code is in it; else `None`."""
        if isinstance(source, types.CodeType):
            return compiled.get(source, source if _all[0] else None)
        source = str.__str__(source) if isinstance(source, str) else source
        if _all[0]:
            return source
        kind = type(source)
        if kind not in (str, bytes):
            return None
        is_full = _size[0] > _MOST  # Then those that came later are not known.
        is_name = kind is str and source.strip() in _names
        return source if is_full or is_name or any(type(each) is kind and each in source for each in _texts) else None

    def made(source: Any, mode: str, frame: Any) -> Any:
        flags = frame.f_code.co_flags & _FUTURE
        return make(source, "<string>", mode, flags, True) if isinstance(source, (str, bytes)) else source

    def guarded_eval(source: Any, *given: Any, **more: Any) -> Any:
        frame = sys._getframe(1)
        spaces = _spaces(frame, given, more)
        text = None if _is_known(frame) else of_code(source)
        if text is not None and not _is_harmless(text, spaces):
            raise peer.lost("the tests evaluate a text of the code")
        source = source.lstrip(" \t") if isinstance(source, str) else source
        return evaluate(made(source, "eval", frame), *spaces)

    def guarded_exec(source: Any, *given: Any, **more: Any) -> None:
        frame = sys._getframe(1)
        if not _is_known(frame) and of_code(source) is not None:
            raise peer.lost("the tests run a text of the code")
        closure = {name: more.pop(name) for name in ("closure",) if name in more}
        execute(made(source, "exec", frame), *_spaces(frame, given, more), **closure)

    def guarded_compile(source: Any, *given: Any, **more: Any) -> Any:
        frame = sys._getframe(1)
        if len(given) < 4 and not more.get("dont_inherit"):
            flags = frame.f_code.co_flags & _FUTURE
            if len(given) > 2:
                given = (*given[:2], given[2] | flags)
            else:
                more["flags"] = more.get("flags", 0) | flags
            more["dont_inherit"] = True
        code = make(source, *given, **more)
        if isinstance(code, types.CodeType) and not _is_known(frame) and (text := of_code(source)) is not None:
            compiled[code] = text
        return code

    def loads_there(data: Any, *given: Any, **options: Any) -> Any:
        is_of_code = isinstance(data, (bytes, bytearray)) and bytes(data) in _texts
        return peer.ask("unpickle", None, "", (bytes(data),)) if is_of_code else loads(data, *given, **options)

    vars(builtins).update(eval=guarded_eval, exec=guarded_exec, compile=guarded_compile)
    pickle.loads = loads_there


def _spaces(frame: Any, given: Any, more: Dict[str, Any]) -> Any:
    """The namespaces that `eval` and `exec` use."""
    spaces = [*given, *(more[name] for name in ("globals", "locals") if name in more)]
    if not spaces or spaces[0] is None:
        spaces[:1] = [frame.f_globals] if len(spaces) > 1 else [frame.f_globals, frame.f_locals]
    if type(spaces[0]) is dict:
        spaces[0].setdefault("__builtins__", frame.f_builtins)
    return spaces


def _is_known(frame: Any) -> bool:
    """Whether a library calls, which runs only what it has written itself."""
    name = str(frame.f_globals.get("__name__"))
    top = name.partition(".")[0]
    if name == _RUNS_CONDITIONS:
        return False
    if _all[0]:
        return top in _RUN_OWN_TEXTS
    is_library = "-packages" in frame.f_code.co_filename or top in getattr(sys, "stdlib_module_names", ())
    return is_library and top not in _RUN_TEXTS


def _is_harmless(source: Any, spaces: Any) -> bool:
    """Whether an expression makes nothing but data and objects of the code."""
    try:
        nodes = [*ast.walk(ast.parse(source, mode="eval"))]
    except (SyntaxError, ValueError, RecursionError):
        return True  # It cannot be evaluated.
    return all(isinstance(node, _NODES) for node in nodes) and all(
        _makes_data(node, spaces) for node in nodes if isinstance(node, (ast.Name, ast.Attribute))
    )


def _makes_data(node: Any, spaces: Any) -> bool:
    """Whether a name stands for data or what makes it, or attributes of a name do: `datetime.sys` does not."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if any(each[:1] == "_" for each in names) or not isinstance(node, ast.Name):
        return False
    found = [each[node.id] for each in [*reversed(spaces), vars(builtins)] if node.id in each]
    value = found[0] if found else None
    if not (value is None or isinstance(value, (type, types.ModuleType, StandInModule)) or node.id in _NUMBERS):
        return False  # It may be what the tests expect.
    while names and is_of_data(value) and reference(value) is None:
        value = getattr(value, names.pop(), None)
    return is_of_data(value)


def is_of_data(value: Any) -> bool:
    """Whether a value is data, an object of the code, or what makes data."""
    if reference(value) is not None or value is None or type(value) in (bool, int, float, str, bytes):
        return True
    if isinstance(value, types.ModuleType):
        return value.__name__ in _OF_DATA
    module, _, name = standard_name(value).rpartition(".")
    return name in _HARMLESS if module == "builtins" else (module or type(value).__module__) in _OF_DATA

"""Skills in a session: `from skills import NAME`, and the source of a function for `save_skill`.

Its source is the `inside` of the host's functions `read_skill` and `save_skill`; see `coderoom.sandbox.HostFunction`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import symtable
import sys
import types
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

_LONGEST_VALUE = 2000
_KEPT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.If, ast.Try)
_DATA = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, type(None))

Names = Dict[str, Any]
Statement = Tuple[ast.stmt, str, str]  # With its text, and the name of the file.


def wrap(stub: Callable[..., Any], names: Names) -> Callable[..., Any]:
    """What code calls in place of a stub; with `read_skill`, the module `skills` is there too."""
    if stub.__name__ == "read_skill":
        sys.modules["skills"] = _Skills(stub, names)
        return stub

    def save_skill(name: Any, tests: str, code: str = "", replace: bool = False) -> Any:
        name = getattr(name, "__name__", name)
        said = stub(name, tests, code or source_of(name, names), replace)
        vars(sys.modules["skills"]).pop(name, None)  # So that it is read again.
        return said

    save_skill.__doc__, save_skill.__module__ = stub.__doc__, stub.__module__
    save_skill.__signature__ = inspect.signature(stub)  # type: ignore[attr-defined]
    return save_skill


class _Skills(types.ModuleType):
    """The module `skills`, which reads and runs a skill when its name is asked for."""

    def __init__(self, read: Callable[[str], str], names: Names) -> None:
        super().__init__("skills", "Functions that earlier code has left.")
        vars(self)["_read"] = read
        vars(self)["_names"] = names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            source = vars(self)["_read"](name)
        except (LookupError, ValueError) as error:
            raise ImportError(str(error.args[0] if error.args else error)) from None
        filename = "<skill %s>" % name
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        module = types.ModuleType("skills." + name)
        vars(module).update(__builtins__=vars(self)["_names"]["__builtins__"], __file__=filename)
        sys.modules[module.__name__] = module  # Data classes look for it there.
        exec(compile(source, filename, "exec"), vars(module))
        found = vars(module)[name]
        setattr(self, name, found)
        return found


def source_of(name: str, names: Names) -> str:
    """The source of a function of the session, with the imports, functions and values that it needs.

    Raises:
        ValueError: Something of it cannot be found, or cannot be in a skill.
    """
    if not inspect.isfunction(inspect.unwrap(names.get(name))):  # type: ignore[arg-type]
        raise ValueError("%r is not a function of this session; define it first, or give its source as code=" % name)
    found = _Found()
    if type(names.get("annotations")).__name__ == "_Feature":
        found.add("annotations", names, name)
    found.add(name, names, name)
    return found.text()


class _Found:
    """The statements that a function needs, each after those that it needs itself."""

    def __init__(self) -> None:
        self._from: Dict[str, Names] = {}  # The variables in which a name was found.
        self._imports: List[str] = []
        self._others: List[str] = []

    def text(self) -> str:
        """All of it, as a module."""
        self._imports.sort(key=lambda each: not each.startswith("from __future__ "))
        text = "\n".join(self._imports) + ("\n" if self._imports else "")
        short = bool(text)  # Whether the last statement has one line.
        for each in self._others:
            was_short, short = short, "\n" not in each and each[:1] != "@"
            text = text + "\n" + each if was_short and short else (text.rstrip("\n") + "\n\n\n" + each).lstrip("\n")
        return text + "\n"

    def add(self, name: str, names: Names, needed_by: str) -> None:
        """Add what defines a name, if it is no built-in one."""
        if name in self._from:
            if self._from[name] is not names:
                raise ValueError("two different things are called %r in what %r needs; rename one" % (name, needed_by))
            return
        if name not in names:
            if hasattr(builtins, name) or name.startswith("__"):
                return
            raise ValueError("%r needs %r, which this session does not have" % (needed_by, name))
        self._from[name] = names
        value = names[name]
        statement = _statement_of(name, value, names)
        if statement is None and callable(value):
            raise ValueError(
                "%r calls %r, which a skill cannot have, since its source is not in this session (it may be a "
                "function of the host): let %r take it as an argument" % (needed_by, name, needed_by)
            )
        node, text, _ = statement or (None, "", "")
        if isinstance(node, ast.ImportFrom) and node.module == "skills":
            self._add_of_skill(name, value, needed_by)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._put(self._imports, text)
        elif _is_data(value) and not _counts_as_written(node):
            self._put(self._others, "%s = %r" % (name, value))
        elif isinstance(node, _KEPT):
            for each in _free_names(text):
                if each != name:
                    self.add(each, names, name)
            self._put(self._others, text)
        else:
            raise ValueError(
                "%r uses the variable %r (%s), which a skill cannot have: let it be an argument"
                % (needed_by, name, type(value).__name__)
            )

    def _add_of_skill(self, name: str, value: Any, needed_by: str) -> None:
        """Add a skill that is used under a name: its source becomes part of this one."""
        function = inspect.unwrap(value)
        del self._from[name]
        self.add(function.__name__, function.__globals__, needed_by)
        if function.__name__ != name:
            self._put(self._others, "%s = %s" % (name, function.__name__))

    @staticmethod
    def _put(texts: List[str], text: str) -> None:
        if text not in texts:
            texts.append(text)


def _is_data(value: Any) -> bool:
    """Whether it is small and made of literals."""
    if type(value) not in _DATA:
        return False
    try:
        text = repr(value)
        return len(text) <= _LONGEST_VALUE and bool(ast.literal_eval(text) == value)
    except Exception:
        return False


def _counts_as_written(node: Optional[ast.stmt]) -> bool:
    """Whether a statement is meant, and not what its variable has become: it imports, or assigns a literal."""
    if node is None or any(isinstance(each, (ast.Import, ast.ImportFrom)) for each in ast.walk(node)):
        return node is not None
    try:
        ast.literal_eval(getattr(node, "value", None) or "")
    except (ValueError, SyntaxError):
        return False
    return isinstance(node, (ast.Assign, ast.AnnAssign))


def _statement_of(name: str, value: Any, names: Names) -> Optional[Statement]:
    """The statement that has bound a name: for a function the one with its code, else the last one."""
    function = inspect.unwrap(value) if callable(value) else value
    code = getattr(function, "__code__", None)
    last = None
    for statement in _statements(names):
        node, _, filename = statement
        if name in _bound_by(node):
            last = statement
            if (
                code is not None
                and filename == code.co_filename
                and _first_line(node) <= code.co_firstlineno <= (node.end_lineno or 0)
            ):
                return statement
    return last


def _statements(names: Names) -> Iterator[Statement]:
    """All statements of the session's cells, or of the skill whose variables these are."""
    own = names.get("__file__", "")
    filenames = [own] if str(own).startswith("<skill ") else sorted(_cells(), key=_number)
    for filename in filenames:
        lines = linecache.getlines(filename)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError):  # It has magics, or was never run.
            continue
        for node in tree.body:
            yield node, "".join(lines[_first_line(node) - 1 : node.end_lineno]).rstrip(), filename


def _cells() -> List[str]:
    return [each for each in list(linecache.cache) if each.startswith("<cell ")]


def _number(filename: str) -> int:
    return int(filename[len("<cell ") : -1])


def _first_line(node: ast.stmt) -> int:
    decorators: List[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _bound_by(node: ast.stmt) -> Iterator[str]:
    """The names that a statement binds outside of functions and classes in it."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.stmt):
            yield from _bound_by(each)
        elif isinstance(each, ast.ExceptHandler):
            for inner in each.body:
                yield from _bound_by(inner)
        elif isinstance(each, ast.alias):
            yield each.asname or each.name.partition(".")[0]
        else:
            names = [found for found in ast.walk(each) if isinstance(found, ast.Name)]
            yield from (found.id for found in names if isinstance(found.ctx, ast.Store))


def _free_names(text: str) -> List[str]:
    """The names that a statement takes from around it, in a stable order."""
    found = set()
    try:
        tables = [symtable.symtable(text, "<skill>", "exec")]
    except SyntaxError:
        raise ValueError("a skill cannot have this statement of the session: %s" % text[:200]) from None
    while tables:
        table = tables.pop()
        tables += table.get_children()
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                found.add(symbol.get_name())
    return sorted(found)

"""Mutants of Python code: the code with one small change each, by the standard operators of mutation testing.

They are always the same for the same code. Text that tests do not judge is left as it is: docstrings, annotations,
messages of exceptions, and what is printed or logged.
"""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from types import CodeType
from typing import Any, Final

from coderoom.judge.source import UNREADABLE, parsed

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, ...]]] = {
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"),
    ast.Eq: ("!=",), ast.NotEq: ("==",), ast.In: ("not in",), ast.NotIn: ("in",), ast.Is: ("is not",),
    ast.IsNot: ("is",),
}  # fmt: skip
_SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "in",
    ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@", ast.And: "and", ast.Or: "or",
}  # fmt: skip
_ARITHMETIC: Final[dict[type[ast.operator], str]] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*",
    ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_LOGGERS: Final = {"print", "log", "logger", "logging", "_log", "_logger", "warnings"}
_LONGEST: Final = 60


@dataclass(frozen=True)
class Mutant:
    """Code with one change.

    Attributes:
        line: The line of the change, counted from 1.
        change: The change in words: what stands there now, and for what.
        place: The line and the column of its statement.
        source: The changed code.
    """

    line: int
    change: str
    place: tuple[int, int]
    source: str


class Mutants:
    """The mutants of code, made when they are needed.

    Args:
        source: The code; invalid code has no mutants.

    Attributes:
        count: How many changes are possible.
        equivalent: How many of those that were made proved to mean the same.
    """

    def __init__(self, source: str) -> None:
        self._source = source.replace("\r\n", "\n").replace("\r", "\n")
        self._data = self._source.encode("utf-8", "surrogatepass")
        starts = [0]
        for line in self._data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        self._starts = starts
        self._changes: list[_Change] = []
        self._statement = 0, 0
        self.equivalent = 0
        try:
            tree = parsed(self._source)
            self._code = _essence(compile(tree, "<code>", "exec", dont_inherit=True))
        except UNREADABLE:
            tree = ast.Module([], [])
        for statement in tree.body:
            self._visit_statement(statement)
        self._tree = tree
        self._changes = [*{(each.begin, each.end, each.new): each for each in self._changes}.values()]
        self.count = len(self._changes)

    def __iter__(self) -> Iterator[Mutant]:
        """The mutants, spread evenly over the lines: all but the last few lines have a mutant before one has two."""
        by_line: dict[int, list[_Change]] = defaultdict(list)
        for each in self._changes:
            by_line[each.line].append(each)
        chance = Random(0)
        for line in sorted(by_line):
            chance.shuffle(by_line[line])
        for turn in range(max(map(len, by_line.values()), default=0)):
            changes = [several[turn] for _, several in sorted(by_line.items()) if turn < len(several)]
            chance.shuffle(changes)
            for change in changes:
                if (mutant := self._made(change)) is not None:
                    yield mutant

    def _made(self, change: _Change) -> Mutant | None:
        """The mutant of a change; `None` if it is invalid or provably means the same."""
        data = self._data[: change.begin] + change.new.encode() + self._data[change.end :]
        source = data.decode("utf-8", "surrogatepass")
        try:
            with warnings.catch_warnings(action="ignore"):
                code = _essence(compile(source, "<code>", "exec", dont_inherit=True))
        except UNREADABLE:
            return None
        if code == self._code:
            self.equivalent += 1
            return None
        return Mutant(change.line, f'"{change.words}" for "{_short(change.old)}"', change.place, source)

    def marked(self) -> str:
        """The code with a call of `mark_statement` before each statement, with its line and its column."""
        for node in [*ast.walk(self._tree)]:
            for name in ("body", "orelse", "finalbody"):
                body = getattr(node, name, None)
                if isinstance(body, list):
                    setattr(node, name, [each for old in body for each in (*_mark_of(old), old)])
        return ast.unparse(ast.fix_missing_locations(self._tree))

    def _visit_statement(self, node: ast.stmt) -> None:
        """Find the changes in a statement and below it."""
        self._statement = node.lineno, node.col_offset
        for child in self._heads(node):
            self._visit(child)
        self._change_statement(node)
        for name in ("body", "orelse", "finalbody"):
            for each in getattr(node, name, ()):
                self._visit_statement(each)
        for each in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            for inner in each.body:
                self._visit_statement(inner)

    def _heads(self, node: ast.stmt) -> Iterator[ast.expr]:
        """The expressions of a statement itself whose values tests can see."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None)
        elif isinstance(node, ast.AnnAssign):
            yield from () if node.value is None else (node.value,)
        elif isinstance(node, ast.Expr):
            yield from () if isinstance(node.value, ast.Constant) or _is_log(node.value) else (node.value,)
        elif not isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.ClassDef):
            yield from (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
            for item in getattr(node, "items", ()):
                yield item.context_expr

    def _change_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Return(value=ast.Constant(value=None)):
                self._add(node, "return 0")
            case ast.Return(value=ast.expr()):
                self._add(node, "return None")
            case ast.Break():
                self._add(node, "continue")
            case ast.Continue():
                self._add(node, "break")
            case ast.AugAssign():
                if (sign := _ARITHMETIC.get(type(node.op))) is not None:
                    new = f"{self._text(node.target)} {sign}= {self._text(node.value)}"
                    self._add(node, new, sign + "=", _SIGNS[type(node.op)] + "=")
                self._add(node, "pass")
            case ast.Raise() | ast.Delete():
                self._add(node, "pass")
            case ast.Expr(value=ast.Call()) if not _is_log(node.value):
                self._add(node, "pass")
            case ast.Assign() if not isinstance(node.targets[0], ast.Name):
                self._add(node, "pass")
            case ast.If():
                self._add(node.test, "True")
                self._add(node.test, "False")
            case ast.While() if not isinstance(node.test, ast.Constant):
                self._add(node.test, "False")

    def _visit(self, node: ast.expr) -> None:
        """Find the changes in an expression."""
        match node:
            case ast.JoinedStr() | ast.Lambda(body=ast.Constant()):
                return  # Older Pythons do not know where the parts of a formatted string stand.
            case ast.Compare():
                self._change_comparison(node)
            case ast.BinOp():
                is_text = isinstance(node.op, ast.Mod | ast.Add) and _is_text(node.left, node.right)
                if (sign := _ARITHMETIC.get(type(node.op))) is not None and not is_text:
                    new = f"({self._text(node.left)}) {sign} ({self._text(node.right)})"
                    self._add(node, f"({new})", sign, _SIGNS[type(node.op)])
            case ast.BoolOp():
                sign = "or" if isinstance(node.op, ast.And) else "and"
                new = f" {sign} ".join(f"({self._text(each)})" for each in node.values)
                self._add(node, f"({new})", sign, _SIGNS[type(node.op)])
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                self._add(node, f"({self._text(node.operand)})", self._text(node.operand))
            case ast.Constant():
                self._change_constant(node)
            case ast.IfExp():
                self._add(node.test, "True")
                self._add(node.test, "False")
            case ast.Subscript(slice=ast.Slice() as bounds):
                for bound in (bounds.lower, bounds.upper):
                    if bound is not None:
                        words = self._text(bounds)
                        self._add(bound, "", words.replace(self._text(bound), "", 1), words)
                        if not isinstance(bound, ast.Constant):
                            self._add(bound, f"({self._text(bound)}) + 1", f"{self._text(bound)} + 1")
            case ast.Call():
                self._swap(node.args)
            case ast.Tuple() | ast.List():
                self._swap(node.elts)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._visit(child)
            elif isinstance(child, ast.comprehension):
                self._visit(child.iter)
                for test in child.ifs:
                    self._add(test, "True")
                    self._add(test, "False")
                    self._visit(test)
            elif isinstance(child, ast.keyword):
                self._visit(child.value)
            elif isinstance(child, ast.arguments):
                for default in (*child.defaults, *child.kw_defaults):
                    if default is not None:
                        self._visit(default)

    def _change_comparison(self, node: ast.Compare) -> None:
        sides = [f"({self._text(each)})" for each in (node.left, *node.comparators)]
        signs = [_SIGNS[type(each)] for each in node.ops]
        for place, each in enumerate(node.ops):
            for sign in _COMPARISONS[type(each)]:
                new = [sides[0]]
                for at, (old, side) in enumerate(zip(signs, sides[1:], strict=True)):
                    new += [sign if at == place else old, side]
                self._add(node, f"({' '.join(new)})", sign, signs[place])

    def _change_constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(node, str(not value))
        elif isinstance(value, int):
            for each in (value + 1, value - 1):
                self._add(node, f"({each})" if each < 0 else str(each), str(each))
        elif isinstance(value, float):
            self._add(node, repr(value + 1.0))
        elif isinstance(value, str):
            self._add(node, '""' if value else '"x"')
        elif isinstance(value, bytes):
            self._add(node, 'b""' if value else 'b"x"')

    def _swap(self, nodes: Sequence[ast.expr]) -> None:
        """Swap two neighbours that are constants."""
        for one, other in pairwise(nodes):
            if isinstance(one, ast.Constant) and isinstance(other, ast.Constant) and one.value != other.value:
                begin, end = self._place(one)[0], self._place(other)[1]
                old = self._data[begin:end].decode("utf-8", "surrogatepass")
                new = f"{self._text(other)}, {self._text(one)}"
                self._changes.append(_Change(one.lineno, begin, end, new, new, old, self._statement))

    def _add(self, node: ast.AST, new: str, words: str = "", old: str = "") -> None:
        begin, end = self._place(node)
        line = node.lineno  # type: ignore[attr-defined]
        given = self._text(node)
        self._changes.append(_Change(line, begin, end, new, words or _short(new), old or given, self._statement))

    def _place(self, node: Any) -> tuple[int, int]:
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        begin, end = self._place(node)
        return self._data[begin:end].decode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class _Change:
    line: int
    begin: int
    end: int
    new: str
    words: str
    old: str
    place: tuple[int, int]


def _mark_of(node: ast.stmt) -> list[ast.stmt]:
    """The mark before a statement; there is none before what has to be first."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if is_text or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
        return []
    return parsed(f"mark_statement(({node.lineno}, {node.col_offset}))").body


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _is_log(node: ast.expr) -> bool:
    """Whether an expression only prints or logs."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and function.id in _LOGGERS


def _is_text(*sides: ast.expr) -> bool:
    """Whether a side is a text: any other operation with it raises."""
    return any(isinstance(each, ast.JoinedStr) or isinstance(getattr(each, "value", None), str) for each in sides)


def _essence(code: CodeType) -> Any:
    """What code does, without its lines and columns."""
    constants = [_essence(each) if isinstance(each, CodeType) else (type(each), repr(each)) for each in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_flags, code.co_argcount

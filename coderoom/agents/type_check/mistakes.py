"""Chooses which errors of the type checker are certain, and shows them as a compiler does.

What is possibly fine is not an error: where in doubt, code runs. Types of arguments count only for functions of the
host, which check them, and only where the code has a literal. A call with nothing else is checked as when it is made.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import TypeGuard, get_args

from pydantic import ValidationError
from pydantic_core.core_schema import ErrorType

from coderoom.agents.type_check.checker import Finding
from coderoom.agents.type_check.names import Names, Place, Use
from coderoom.agents.type_check.stubs import as_shown
from coderoom.sandbox import HostFunction

_ANYWHERE = {*dir(builtins), "display", "get_ipython", "exit", "quit", "HostFunctionError", "reload", "In", "Out"}
_CALLED = [name for name in dir(builtins) if name.islower() and name[0] != "_"]
_COUNTS = ("missing-argument", "too-many-positional-arguments", "unknown-argument")
_OF_COROUTINES = ("send", "throw", "close", "cr_")
_TAKERS = {
    *("abs", "all", "any", "dict", "enumerate", "float", "int", "iter", "len", "list", "max", "min", "next", "print"),
    *("round", "set", "sorted", "str", "sum", "tuple", "zip", "dumps"),
}
_ALL = ("Exception", "BaseException")
_OF_VALUES = {*get_args(ErrorType)} - {"assertion_error", "value_error"}
"""The errors of pydantic that depend on nothing but a value and its type: others are a function's own."""
_MOST = 5
_LONGEST = 300


@dataclass(frozen=True, order=True)
class Mistake:
    """A call that is surely wrong.

    Attributes:
        line: Its line, counted from 1.
        begin: Where the wrong part begins in the line, in characters from 0.
        end: Where it ends.
        message: What is wrong.
        definition: The `def` line of the function; empty if it is not known.
    """

    line: int
    begin: int
    end: int
    message: str
    definition: str = ""


@dataclass(frozen=True)
class Known:
    """What is known besides the code.

    Attributes:
        functions: The functions of the host, by their names.
        definitions: Functions that earlier code has defined.
        bound: All names that earlier code has bound.
        is_open: Whether earlier code may have bound others.
    """

    functions: Mapping[str, HostFunction]
    definitions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
    bound: frozenset[str]
    is_open: bool = False


class Mistakes:
    """The mistakes in code, among what a checker has found."""

    def __init__(self, names: Names, known: Known) -> None:
        self._lines = names.code.split("\n")
        self._names = names
        self._known = known
        self._reached = names.reached()
        self._calls: dict[Place, Use] = {}
        self._arguments: dict[Place, tuple[Use, ast.AST]] = {}
        self._at: dict[Place, Use] = {}
        self._by_name: dict[str, list[Use]] = {}
        for use in names.uses.values():
            self._at[self._place(use.node)] = use
            self._by_name.setdefault(use.node.id, []).append(use)
            if (call := use.call) is not None:
                self._calls[self._place(call)] = use
                for each in (*call.args, *call.keywords):
                    self._arguments[self._place(each)] = use, each

    def among(self, findings: Iterable[Finding]) -> list[Mistake]:
        """The certain ones, in order."""
        found = {*filter(None, map(self._certain, findings)), *self._of_awaiting()}
        return sorted({*found, *self._of_literals({each.line for each in found})})

    def _certain(self, finding: Finding) -> Mistake | None:
        place = finding.line, finding.column
        if finding.rule == "unresolved-reference":
            named = self._at.get(place)
            return None if named is None else self._unknown(named)
        use, wrong = self._arguments.get(place, (None, None))
        if finding.rule == "missing-argument":
            use = self._calls.get(place)
            wrong = None if use is None else use.call
        if use is None or wrong is None or use.call is None or not self._is_sure(use, use.call):
            return None
        name = use.node.id
        if self._is_of_host(use):
            is_certain = finding.rule in _COUNTS or self._is_wrong_literal(wrong, finding.message)
            header = self._known.functions[name].header
        else:
            definition = self._definition(use) if use.scope in self._reached else None  # It may be defined anew.
            is_certain = definition is not None and finding.rule in _COUNTS
            header = "" if definition is None else _header(definition)
        return self._mistake(wrong, as_shown(finding.message), header) if is_certain else None

    def _is_sure(self, use: Use, call: ast.Call) -> bool:
        """Whether the arguments of a call are all known, and nobody expects that they are wrong."""
        unpacked = any(isinstance(each, ast.Starred) for each in call.args)
        unpacked = unpacked or any(each.arg is None for each in call.keywords)
        expected = use.guards if use.scope is self._names.module else self._names.expected
        return not unpacked and "TypeError" not in expected and not self._names.is_open and not self._known.is_open

    def _is_of_host(self, use: Use) -> bool:
        name = use.node.id
        return name in self._known.functions and use.scope.owner(name) is None and name not in self._known.bound

    def _definition(self, use: Use) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The only one that a call can mean."""
        name = use.node.id
        owner = use.scope.owner(name)
        if owner is None:
            return self._known.definitions.get(name)
        return self._names.definitions.get(name) if owner is self._names.module else None

    def _is_wrong_literal(self, argument: ast.AST, message: str) -> bool:
        value: ast.AST | None = argument.value if isinstance(argument, ast.keyword) else argument
        if isinstance(value, ast.Name):
            value = self._names.values.get(value.id)
        return value is not None and _is_literal(value) and not (isinstance(value, ast.Dict) and "`dict[" in message)

    def _unknown(self, use: Use) -> Mistake | None:
        """The mistake of a name that is nowhere defined and is called, or has a function of the host called.

        Without functions of the host, the failure of the code is only told before if it is near to a known name. Where
        it may not be met, it must be near to a function of ours: people write `else: error()`, and mean it.
        """
        import difflib  # Few need it.

        name = use.node.id
        around = use.parents[:2]
        attribute = around[0].attr if isinstance(around[0], ast.Attribute) else ""
        is_called = use.call is not None or (
            attribute in self._known.functions and isinstance(around[1], ast.Call) and around[1].func is around[0]
        )
        ours = {*self._known.functions, *self._known.definitions, *self._names.definitions}
        near = attribute or next(iter(difflib.get_close_matches(name, ours, 1, 0.75)), "")
        is_met = not use.is_conditional and not any(each in use.guards for each in _ALL)
        expected = use.guards if use.scope is self._names.module else self._names.expected
        if (
            not is_called
            or use.scope not in self._reached
            or self._names.is_open
            or self._known.is_open
            or name in _ANYWHERE
            or name in self._known.bound
            or name in self._known.functions
            or name.startswith("_")
            or name in self._names.texts
            or use.scope.owner(name) is not None
            or "NameError" in expected
            or not (near or (self._known.functions and is_met))
        ):
            return None
        if attribute:
            return self._mistake(use.node, f"Name `{name}` is not defined; call `{attribute}(...)` without it")
        near = near or next(iter(difflib.get_close_matches(name, _CALLED, 1, 0.8)), "")
        hint = f"; did you mean `{near}`?" if near else ""
        defined = self._known.functions.get(near)
        return self._mistake(
            use.node, f"Function `{name}` is not defined{hint}", "" if defined is None else defined.header
        )

    def _of_awaiting(self) -> Iterator[Mistake]:
        """Calls without the `await` that they need; of functions of the host, with one that they do not take, too."""
        if self._names.is_open or self._known.is_open:
            return
        for use in self._calls.values():
            call = use.call
            if call is None or "TypeError" in use.guards:
                continue
            if not self._is_of_host(use):
                is_sure = use.scope in self._reached and self._is_sure(use, call)
                definition = self._definition(use) if is_sure else None
                if _is_coroutine(definition) and _fails_with_coroutine(call, use.parents[1]):
                    message = f"Function `{use.node.id}` is async: write `await {use.node.id}(...)`"
                    yield self._mistake(call, message, _header(definition))
                continue
            name, around = use.node.id, use.parents[1]
            function = self._known.functions[name]
            if isinstance(around, ast.Await):
                if not function.is_async:
                    message = f"Function `{name}` is not async: call it without `await`"
                    yield self._mistake(around, message, function.header)
            elif function.is_async and (_needs_value(call, use.parents[1:]) or self._is_used_as_value(use)):
                message = f"Function `{name}` is async: write `await {name}(...)`, or nothing is called"
                yield self._mistake(call, message, function.header)

    def _of_literals(self, lines: set[int]) -> Iterator[Mistake]:
        """Calls that functions of the host refuse, outside of some lines; their arguments are all literals."""
        for use in self._calls.values():
            call = use.call
            if call is None or not self._is_of_host(use) or not self._is_sure(use, call):
                continue
            if use.scope not in self._reached or not lines.isdisjoint(range(call.lineno, (call.end_lineno or 0) + 1)):
                continue
            function = self._known.functions[use.node.id]
            try:
                args = [ast.literal_eval(each) for each in call.args]
                kwargs = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            if message := _why_refused(function, args, kwargs):
                yield self._mistake(call, message, function.header)

    def _is_used_as_value(self, use: Use) -> bool:
        """Whether a call's coroutine gets a name, which is then used as if it were the result."""
        assignment = use.parents[1]
        if not isinstance(assignment, ast.Assign) or not all(isinstance(each, ast.Name) for each in assignment.targets):
            return False
        targets = [each.id for each in assignment.targets if isinstance(each, ast.Name)]
        if any((owner := use.scope.owner(name)) is None or owner.bound[name] > 1 for name in targets):
            return False
        later = [each for name in targets for each in self._by_name.get(name, ())]
        return bool(later) and all(_needs_value(each.node, each.parents) for each in later)

    def _mistake(self, node: ast.AST, message: str, definition: str = "") -> Mistake:
        line, begin = self._place(node)
        end_line, end = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", begin)
        text = self._lines[line - 1]
        last = self._in_characters(line, end) if end_line == line else len(text)
        return Mistake(line, begin, last, message, definition)

    def _place(self, node: ast.AST) -> Place:
        """Where a node begins: its line, and its column in characters."""
        line = getattr(node, "lineno", 1)
        return line, self._in_characters(line, getattr(node, "col_offset", 0))

    def _in_characters(self, line: int, column: int) -> int:
        text = self._lines[line - 1]
        return column if text.isascii() else len(text.encode("utf-8", "replace")[:column].decode("utf-8", "replace"))


def _why_refused(function: HostFunction, args: list[object], kwargs: dict[str, object]) -> str:
    """Why a function refuses arguments whatever else there is; empty if it does not."""
    try:
        Context().run(function.check, args, kwargs)  # As a call that nobody makes.
    except TypeError as error:
        cause = error.__cause__
        if cause is None:
            return ""
        own = isinstance(cause, ValidationError) and {each["type"] for each in cause.errors()} - _OF_VALUES
        return "" if own else str(error)
    except Exception:  # The function says more when it is called.
        return ""
    return ""


def _is_literal(node: ast.AST) -> bool:
    """Whether it is a literal, but for those that some types are made of: bytes, and numbers as `5.0`."""
    if isinstance(node, ast.Constant):
        is_whole = isinstance(node.value, float) and node.value.is_integer()
        return not is_whole and isinstance(node.value, str | int | float | None)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant) and _is_literal(node.operand)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(map(_is_literal, node.elts))
    if isinstance(node, ast.Dict):
        return all(each is not None and _is_literal(each) for each in (*node.keys, *node.values))
    return isinstance(node, ast.JoinedStr)


def _needs_value(node: ast.AST, parents: tuple[ast.AST, ...]) -> bool:
    """Whether an expression stands where a coroutine is surely wrong."""
    around = parents[0]
    if isinstance(around, ast.Expr | ast.FormattedValue | ast.BinOp):
        return True
    if isinstance(around, ast.Subscript | ast.Attribute):
        used = getattr(around, "attr", "")
        return around.value is node and not used.startswith(("__", *_OF_COROUTINES))
    if isinstance(around, ast.For | ast.comprehension):
        return around.iter is node
    if isinstance(around, ast.Call):
        name = getattr(around.func, "id", getattr(around.func, "attr", ""))
        return around.func is not node and name in _TAKERS
    return False


def _is_coroutine(node: ast.AST | None) -> TypeGuard[ast.AsyncFunctionDef]:
    return isinstance(node, ast.AsyncFunctionDef) and not any(isinstance(each, ast.Yield) for each in ast.walk(node))


def _fails_with_coroutine(node: ast.AST, around: ast.AST) -> bool:
    """Whether an expression stands where a coroutine is a `TypeError`."""
    if isinstance(around, ast.Subscript):
        return around.value is node
    is_iterated = isinstance(around, ast.For) or (isinstance(around, ast.comprehension) and not around.is_async)
    return is_iterated and getattr(around, "iter", None) is node


def _header(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{kind} {node.name}({ast.unparse(node.args)})"


def show_mistakes(mistakes: list[Mistake], lines: list[str], places: list[str]) -> str:
    """The mistakes as a compiler prints them; `places` has where each line is."""
    shown = []
    for each in mistakes[:_MOST]:
        text = lines[each.line - 1]
        indent = len(text) - len(text.lstrip())
        begin, end = each.begin - indent, max(each.end, each.begin + 1) - indent
        text = text.strip()
        if len(text) > _LONGEST:
            cut = max(0, begin - 40)
            text, begin, end = text[cut : cut + _LONGEST], begin - cut, min(end - cut, _LONGEST)
        parts = [f"{places[each.line - 1]}: {each.message[:_LONGEST]}", f"    {text}"]
        parts += [f"    {' ' * begin}{'^' * (end - begin)}"]
        parts += [f"  It is: {each.definition[:_LONGEST]}"] if each.definition else []
        shown.append("\n".join(parts))
    if len(mistakes) > _MOST:
        shown.append(f"and {len(mistakes) - _MOST:,} more")
    return "\n".join(shown)

"""Runs setup code, which may use only the functions and classes of the program, and checks what it writes into.

The source of setup code was checked on the host before.
"""

from __future__ import annotations

import array
import ast
import builtins
import collections
import copy
import gc
import os
import sys
import types
from typing import Any, Callable, Dict, List, Set, Tuple

__all__ = ["SetupError", "compile_setup", "run_setup"]

_OWN = ("program", "__main__")
_NAME = "_coderoom_setup_"
_CONTAINERS = (list, dict, set, bytearray, collections.deque, array.array)
_FRESH = (list, dict, set, bytearray, collections.deque, collections.Counter, collections.defaultdict)
_CHANGING = frozenset(
    str.split(
        "add append appendleft byteswap clear difference_update discard extend extendleft fill frombytes fromlist "
        "get_nowait insert intersection_update itemset move_to_end partition pop popitem popleft put put_nowait remove "
        "resize reverse rotate setdefault sort subtract symmetric_difference_update update"
    )
)
_CHANGING_WHAT_IS_GIVEN = frozenset(
    str.split("heapify heappop heappush heappushpop heapreplace insort insort_left insort_right readinto shuffle")
)
_MADE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_CLOSED = (types.ModuleType, types.CodeType, types.FrameType, types.GeneratorType, types.CoroutineType)
_reconstruct: Any = copy._reconstruct  # type: ignore[attr-defined]
_BUILTIN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)
_FUNCTIONS = (types.FunctionType, types.MethodType)
_UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType)
_NOT_INTO = "setup code may not change objects of the program (%s)"


class SetupError(Exception):
    """Setup code raised an exception or did something forbidden.

    Args:
        error: The exception.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class ForbiddenError(Exception):
    """Setup code did something forbidden."""


def compile_setup(source: str) -> Any:
    """Compile setup code with a check around every write.

    Args:
        source: The code.

    Raises:
        SetupError: It is not valid in this version of Python.
    """
    try:
        return compile(ast.fix_missing_locations(_Asking().visit(ast.parse(source))), "<setup>", "exec")
    except Exception as error:
        raise SetupError(error) from None


def run_setup(code: Any, names: Dict[str, Any], functions: List[str], inputs: Dict[str, Any]) -> Dict[str, Any]:
    """Run setup code.

    Args:
        code: The code.
        names: The program's namespace.
        functions: The functions of the program that it may call.
        inputs: The inputs.

    Returns:
        The inputs after the setup.

    Raises:
        SetupError: It raised an exception.
    """
    module = sys.modules[_NAME] = types.ModuleType(_NAME)  # Where dataclasses look for it.
    own = module.__dict__
    own.update(__builtins__=builtins, inputs=inputs)
    for name, value in names.items():
        if name in functions or isinstance(value, type):
            own.setdefault(name, value)
    writes = _Writes(names, own)
    own.update(writes.askers())
    copy._reconstruct = writes.reconstruct  # type: ignore[attr-defined]
    _keep_files()
    # A file that it writes cannot be imported.
    sys.path[:] = [each for each in sys.path if each and os.path.realpath(each) != os.getcwd()]
    try:
        exec(code, own)
        return {**own["inputs"]}
    except BaseException as error:
        raise SetupError(error) from None


class _Writes:
    """Checks writes: knows which objects belong to the program."""

    def __init__(self, names: Dict[str, Any], own: Dict[str, Any]) -> None:
        self._names = names
        self._own = own
        self._mine: Dict[int, Any] = {id(own["inputs"]): own["inputs"]}
        self._met: Dict[int, Any] = {}  # Objects of the program's classes.
        self.made(os.environ)
        self.made(sys.argv)

    def askers(self) -> Dict[str, Callable[..., Any]]:
        """The functions that the compiled setup code calls where it reads or writes a part of an object."""
        return {"$made": self.made, "$into": self.into, "$of": self.of, "$more": self.more, "$came": self.came}

    def made(self, value: Any) -> Any:
        """Record an object that the setup code has created."""
        self._mine[id(value)] = value
        return value

    def came(self, value: Any, maker: Any = None) -> Any:
        """Record the result of a call."""
        if type(value).__module__ in _OWN:
            self._met[id(value)] = value
        return self.made(value) if maker in _FRESH and type(value) is maker else value

    def into(self, value: Any) -> Any:
        """Return the value if a part of it may be set or deleted."""
        kind = type(value)
        if isinstance(value, type):
            allowed = value.__module__ == _NAME
        elif kind is types.FunctionType:
            allowed = value.__globals__ is self._own
        else:
            allowed = kind.__module__ not in _OWN and (kind is types.ModuleType or self._is_mine(value))
        if not allowed:
            raise ForbiddenError(_NOT_INTO % _called(value))
        return value

    def more(self, value: Any) -> Any:
        """The same for values changed in place by `+=` and similar operators."""
        if isinstance(value, _CONTAINERS) and not self._is_mine(value):
            raise ForbiddenError(_NOT_INTO % _called(value))
        return value

    def of(self, value: Any, name: str) -> Any:
        """Read a part of an object."""
        found = getattr(value, name)
        kind = type(found)
        self.came(value)
        of_class = isinstance(value, type) and kind in _UNBOUND
        foreign = kind in _BUILTIN or (kind in _FUNCTIONS and self._is_foreign(found))
        if foreign and name in _CHANGING:
            if of_class:
                raise ForbiddenError("setup code may access %r only of an object, not of a class" % name)
            holder = getattr(found, "__self__", None)
            if not isinstance(holder, (type, types.ModuleType, type(None))) and not self._is_mine(holder):
                raise ForbiddenError(_NOT_INTO % _called(holder))
        elif foreign and name in _CHANGING_WHAT_IS_GIVEN:
            return lambda changed, *more, **named: found(self.more(changed), *more, **named)
        elif foreign and name == "register" and kind is types.FunctionType:
            raise ForbiddenError("setup code may not register anything with functions of the program")
        return found

    def reconstruct(self, value: Any, memo: Any, make: Any, given: Any, *more: Any, **named: Any) -> Any:
        """Like `copy._reconstruct`, but the copy must be a new object, so that no other object is changed."""

        def ask(*parts: Any) -> Any:
            made = make(*parts)
            return made if type(made) is type(value) else self.into(made)

        return _reconstruct(value, memo, ask, given, *more, **named)

    def _is_foreign(self, function: Any) -> bool:
        """Whether a function belongs neither to the program nor to the setup code."""
        names = getattr(getattr(function, "__func__", function), "__globals__", None)
        return names is not self._names and names is not self._own

    def _is_mine(self, value: Any) -> bool:
        if id(value) in self._mine or type(value).__module__ == _NAME:
            return True
        if type(value) is memoryview or (
            type(value).__module__ == "numpy" and getattr(value, "base", None) is not None
        ):
            return self._is_mine(value.obj if type(value) is memoryview else value.base)
        if id(value) in self._held():
            return False
        self.made(value)
        return True

    def _held(self) -> Set[int]:
        """All objects that functions, classes and data of the program refer to, except those of other modules."""
        seen: Set[int] = {id(self._names), id(self._own)}
        left = [*self._names.values(), *self._met.values()]
        while left:
            value = left.pop()
            if id(value) not in seen:
                seen.add(id(value))
                left += self._parts(value)
        return seen

    def _parts(self, value: Any) -> List[Any]:
        kind = type(value)
        if kind is types.FunctionType:
            held = [value.__defaults__, value.__kwdefaults__, value.__dict__, value.__closure__]
            return held if value.__globals__ is not self._own else []
        if isinstance(value, type):
            return list(vars(value).values()) if value.__module__ in _OWN else []
        if kind in (str, int, float, bool, bytes) or kind in _CLOSED or kind.__module__ == _NAME:
            return []
        return gc.get_referents(value)


def _called(value: Any) -> str:
    name = getattr(value, "__name__", None) if isinstance(value, (type, types.FunctionType)) else None
    return str(name) if name is not None else "of the type %s" % type(value).__name__


class _Asking(ast.NodeTransformer):
    """Wraps every write target and every read of an attribute in a check."""

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            node.value = _ask("$into", node.value, node)
        elif not node.attr.startswith("__"):  # Names with two underscores are mangled differently in each class.
            return _ask("$of", node.value, node, ast.Constant(node.attr))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            node.value = _ask("$into", node.value, node)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        return _ask("$came", node, node, *([node.func] if isinstance(node.func, ast.Name) else []))

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        now: Any = copy.deepcopy(node.target)
        now.ctx = ast.Load()
        asked = ast.copy_location(ast.Expr(_ask("$more", self.visit(now), node)), node)
        self.generic_visit(node)
        return [asked, node]

    def visit_match_case(self, node: Any) -> Any:
        node.guard = self.visit(node.guard) if node.guard is not None else None
        node.body = [each for statement in node.body for each in _listed(self.visit(statement))]
        return node

    def visit(self, node: Any) -> Any:
        made = isinstance(node, _MADE) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        node = super().visit(node)
        return _ask("$made", node, node) if made else node


def _listed(found: Any) -> List[Any]:
    return found if isinstance(found, list) else [found]


def _ask(name: str, value: Any, place: Any, *more: Any) -> Any:
    call = ast.Call(ast.Name(name, ast.Load()), [value, *more], [])
    return ast.fix_missing_locations(ast.copy_location(call, place))


def _keep_files() -> None:
    """Prevent writes into this process from now on: into its memory and into the descriptors for its answer."""
    before = (
        {int(each) for each in os.listdir("/proc/self/fd") if int(each) > 2} if os.path.isdir("/proc/self") else set()
    )

    def ask(event: str, about: Tuple[Any, ...]) -> None:
        if event != "open":
            return
        path, _, flags = about
        # Subclasses of strings and numbers may lie about their value.
        if isinstance(path, str):
            path = str.__str__(path)
        elif isinstance(path, bytes):
            path = bytes(memoryview(path))
        elif isinstance(path, int):
            path = int.__add__(path, 0)
        writes = isinstance(flags, int) and (flags & os.O_WRONLY or flags & os.O_RDWR)
        if isinstance(path, int):
            if path in before:
                raise ForbiddenError("setup code may not open existing file descriptors")
        elif writes and os.path.realpath(os.fsdecode(path)).startswith(("/proc/", "/sys/")):
            raise ForbiddenError("setup code may not write into %s" % os.fsdecode(path))

    sys.addaudithook(ask)

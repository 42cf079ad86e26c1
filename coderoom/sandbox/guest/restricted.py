"""The policy `restricted` while code runs, for what its syntax tree cannot show.

It is early feedback for a model and never security: code can get around it, and then meets the wall.
"""

from __future__ import annotations

import builtins
import importlib
import operator
import re
import string
import types
from collections.abc import Callable
from typing import Any

# Names of a module about itself.
_OF_MODULES = ("__doc__", "__name__", "__version__")
# Builtins of `site`: they read files or wait for input.
_OF_SITE = ("copyright", "credits", "license")


def refusal(name: str, hint: str = "") -> str:
    """The message that something is refused, with an alternative if there is one."""
    shown = name if len(name) <= 100 else f"{name[:100]}..."
    if not shown.isprintable():  # It may have lone surrogates, which cannot be encoded.
        shown = ascii(shown)[1:-1]
    return f"`{shown}` is not allowed here: {hint}" if hint else f"`{shown}` is not allowed here"


class Rulebook:
    """The rules and their messages; the host's check uses it too.

    Each method answers with why something is refused, or with `None`.

    Args:
        rules: What `coderoom.sandbox.restricted_rules` returns.
    """

    relative = "relative imports are not allowed here: there is no package around this code"

    def __init__(self, rules: dict[str, Any]) -> None:
        self.vars_alone = refusal("vars()", "name the object")
        self.builtins: dict[str, str] = rules["builtins"]
        self.names = frozenset(rules["names"])
        self.modules: dict[str, list[str] | None] = rules["modules"]
        self.allowed = "allowed: " + ", ".join(sorted(self.modules))
        self._module_hints: dict[str, str] = rules["module_hints"]
        self._attributes: dict[str, str] = rules["attributes"]
        self._dunders = frozenset(rules["dunders"])

    def name(self, name: str) -> str | None:
        """Why a name is refused that the code uses without binding it."""
        if name in self.builtins:
            return refusal(name, self.builtins[name])
        return refusal(name) if name in self.names else None

    def module(self, name: str) -> str | None:
        """Why a module is refused, by its full name."""
        if name in self.modules:
            return None
        return refusal(name, self._module_hints.get(name.partition(".")[0], ""))

    def member(self, module: str, name: str, value: object = None) -> str | None:
        """Why a name in an allowed module is refused; `value` is its value, as far as known."""
        if f"{module}.{name}" in self.modules or name in _OF_MODULES:
            return None
        listed = self.modules[module]
        unlisted = listed is not None and name not in listed
        if unlisted or name.startswith("_") or isinstance(value, types.ModuleType):
            return refusal(f"{module}.{name}")
        return None

    def attribute(self, name: str) -> str | None:
        """Why an attribute is refused, on any object."""
        if name in self._attributes:
            return refusal(name, self._attributes[name])
        dunder = len(name) > 4 and name.startswith("__") and name.endswith("__")
        return refusal(name) if dunder and name not in self._dunders else None


def make_namespace_builtins(rules: dict[str, Any]) -> dict[str, Any]:
    """Make the `__builtins__` of a cell's globals.

    Imported modules keep the real ones: only what the cell itself does is restricted.
    """
    book = Rulebook(rules)
    names = {name: value for name, value in vars(builtins).items() if name not in _OF_SITE}
    for name in book.names - {"__build_class__"}:
        names.pop(name, None)
    names.update((name, _refused(book, name)) for name in book.builtins)
    names.update(_guarded_access(book))
    names["__import__"] = _Importer(book).import_module
    return names


def _refused(book: Rulebook, name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(book.name(name))

    return _called(name, refuse)


def _called(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    return function


def _checked(book: Rulebook, name: Any) -> Any:
    """The name as an exact `str`, if it is allowed: a subclass could answer differently next time."""
    if not isinstance(name, str):
        return name  # The caller raises the error.
    exact = str.__str__(name)
    problem = book.attribute(exact)
    if problem:
        raise PermissionError(problem)
    return exact


def _guarded_access(book: Rulebook) -> dict[str, Callable[..., Any]]:
    """The builtins that take the name of an attribute as data, but `hasattr`, which returns no attribute."""

    def get(obj: Any, name: Any, *default: Any) -> Any:
        return getattr(obj, _checked(book, name), *default)

    def put(obj: Any, name: Any, value: Any) -> None:
        setattr(obj, _checked(book, name), value)

    def delete(obj: Any, name: Any) -> None:
        delattr(obj, _checked(book, name))

    def variables(*objects: Any) -> Any:
        if not objects:
            raise PermissionError(book.vars_alone)
        # By `type`: an object can have any `__class__`.
        if issubclass(type(objects[0]), (type, types.ModuleType)):
            raise PermissionError(refusal(f"vars({type(objects[0]).__name__})", "only of a class's instances"))
        return vars(*objects)

    functions = {"getattr": get, "setattr": put, "delattr": delete, "vars": variables}
    return {name: _called(name, function) for name, function in functions.items()}


class _Importer:
    """Imports views of modules, without their private names and the modules that they use themselves."""

    def __init__(self, book: Rulebook) -> None:
        self._book = book
        self._made: dict[str, types.ModuleType] = {}

    @property
    def import_module(self) -> Callable[..., Any]:
        """Called by `import` statements."""

        def import_module(
            name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
        ) -> types.ModuleType | None:
            if type(fromlist) is list:
                # No statement passes a list. A function in C, such as `strptime`, imports a module with the globals
                # of its caller, and takes it from `sys.modules`.
                importlib.import_module(name)
                return None
            if level:
                raise ImportError(self._book.relative)
            name = str.__str__(name)
            problem = self._book.module(name)
            if problem:
                raise ImportError(f"{problem}; {self._book.allowed}", name=name)
            module = self._view(name)
            for member in fromlist or ():
                self._check(name, module, member)
            return module if fromlist else self._view(name.partition(".")[0])

        return _called("__import__", import_module)

    def _check(self, name: str, module: types.ModuleType, member: str) -> None:
        # The statement itself would then look for a loaded module of that name.
        if member == "*" or hasattr(module, member):
            return
        problem = self._book.member(name, member, getattr(importlib.import_module(name), member, None))
        raise ImportError(problem or f"cannot import name {member!r} from {name!r}", name=name)

    def _view(self, name: str) -> types.ModuleType:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> types.ModuleType:
        module = importlib.import_module(name)
        view = types.ModuleType(name, module.__doc__)
        names = vars(view)
        for member, value in list(vars(module).items()):
            if not member.startswith("_") and self._book.member(name, member, value) is None:
                names[member] = value
        names.update(_replacements(self._book, name))
        for other in self._book.modules:
            package, _, member = other.rpartition(".")
            if package == name:
                names[member] = self._view(other)
        for member in ("__all__", "__version__"):
            if hasattr(module, member):
                names[member] = getattr(module, member)
        if "__all__" in names:
            names["__all__"] = [member for member in names["__all__"] if member in names]
        names["__getattr__"] = _called("__getattr__", self._missing(module))
        return view

    def _missing(self, module: types.ModuleType) -> Callable[[str], Any]:
        """The `__getattr__` of a view: a module may make names only on request."""

        def missing(member: str) -> Any:
            if not hasattr(module, member):
                raise AttributeError(f"module {module.__name__!r} has no attribute {member!r}")
            value = getattr(module, member)
            problem = self._book.member(module.__name__, member, value)
            if problem:
                raise AttributeError(problem)
            return value

        return missing


def _replacements(book: Rulebook, module: str) -> dict[str, Any]:
    """Wrap a function that takes names of attributes as data, as `getattr` does."""

    def exact(name: Any) -> Any:
        if not isinstance(name, str):
            return name
        return ".".join(_checked(book, part) for part in str.__str__(name).split("."))

    def attrgetter(*names: Any) -> Any:
        return operator.attrgetter(*map(exact, names))

    def methodcaller(name: Any, /, *args: Any, **kwargs: Any) -> Any:
        return operator.methodcaller(_checked(book, name), *args, **kwargs)

    class Formatter(string.Formatter):
        def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
            for part in re.sub(r"\[[^\]]*\]?", "", field_name).split(".")[1:]:
                _checked(book, part)
            return super().get_field(field_name, args, kwargs)

    wrapped: dict[str, list[Any]] = {"operator": [attrgetter, methodcaller], "string": [Formatter]}
    return {each.__name__: _called(each.__name__, each) for each in wrapped.get(module, ())}

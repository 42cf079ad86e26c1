"""Patches of the standard library, which tests make in their process: they are made in that of the code, too."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Iterator, List, Tuple

__all__ = ["Patches", "make_patches"]

_OFTEN = ("datetime", "getpass", "os", "os.path", "random", "shutil", "socket", "subprocess", "time", "uuid")
_USED_HERE = frozenset(
    ["abc", "builtins", "collections", "contextlib", "functools", "gc", "importlib", "inspect", "itertools", "json",
     "sys", "threading", "traceback", "types", "unittest", "warnings", "weakref"]
)  # fmt: skip
_BUILT_IN = ("open", "print")


class Patches:
    """What has been patched in the process of the tests, since the last time."""

    def __init__(self) -> None:
        self._watched: Dict[Tuple[str, str], List[Any]] = {}  # The owner, and its names at first and the last time.
        for name in _OFTEN:
            self.watch(importlib.import_module(name))
        self._watch(("builtins", ""), importlib.import_module("builtins"))

    def watch(self, owner: Any) -> None:
        """Watch a module or class of the standard library; others are not."""
        is_module = isinstance(owner, types.ModuleType)
        module, name = (owner.__name__, "") if is_module else (str(owner.__module__), str(owner.__qualname__))
        if _owner(module, name) is owner:
            self._watch((module, name), owner)

    def watch_patches(self) -> None:
        """Watch what `unittest.mock` and pytest patch."""
        kind: Any = vars(importlib.import_module("unittest.mock"))["_patch"]
        enter = kind.__enter__

        def enter_and_watch(patch: Any) -> Any:
            self._try(patch.getter)
            return enter(patch)

        kind.__enter__ = enter_and_watch
        try:
            monkeypatch: Any = importlib.import_module("_pytest.monkeypatch").MonkeyPatch
        except ImportError:
            return
        set_attribute = monkeypatch.setattr

        def set_and_watch(patch: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            self._try(lambda: pkgutil.resolve_name(target.rpartition(".")[0]) if isinstance(target, str) else target)
            return set_attribute(patch, target, *args, **kwargs)

        monkeypatch.setattr = set_and_watch

    def changed(self) -> Iterator[Tuple[List[str], Any]]:
        """Where something has changed, as module, class and name, and in a list what is there now; empty: as before."""
        for place, (owner, first, last) in self._watched.items():
            if vars(owner) == last or (now := _names(place, owner)) == last:
                continue
            for name in now:
                if now[name] is not last.get(name):
                    yield [*place, name], [] if now[name] is first.get(name) else [now[name]]
            self._watched[place][2] = now

    def _try(self, find: Callable[[], Any]) -> None:
        try:
            owner = find()
            if type(owner) is types.ModuleType or type(owner) is type:
                self.watch(owner)
        except Exception:  # Then the patch fails too.
            pass

    def _watch(self, place: Tuple[str, str], owner: Any) -> None:
        if place not in self._watched:
            names = _names(place, owner)
            self._watched[place] = [owner, names, names]


def make_patches(patches: Any, decode: Callable[[Any], Any], before: Dict[Any, Any]) -> None:
    """Make patches in the process of the code.

    Args:
        patches: Where, and what, as data.
        decode: Makes a value of data.
        before: What there was before, which is filled in.
    """
    for (module, qualname, name), value in patches:
        owner = importlib.import_module(module) if module == "builtins" else _owner(module, qualname)
        before.setdefault((module, qualname, name), vars(owner).get(name))
        setattr(owner, name, decode(value[0]) if value else before[module, qualname, name])


def _names(place: Tuple[str, str], owner: Any) -> Dict[str, Any]:
    names = vars(owner)
    if place[0] == "builtins":
        return {name: names[name] for name in _BUILT_IN}
    return {name: each for name, each in names.items() if name[:2] != "__"} if place[1] else dict(names)


def _owner(module: str, qualname: str) -> Any:
    top = module.partition(".")[0]
    if top in _USED_HERE or (top not in getattr(sys, "stdlib_module_names", ()) and top not in _OFTEN):
        return None
    found: Any = importlib.import_module(module)
    return found if not qualname else getattr(found, qualname, None)

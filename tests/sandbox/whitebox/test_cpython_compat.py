"""Private names of CPython are in one module of the guest, and no module of the sandbox has any of docker-py."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import coderoom.sandbox

SANDBOX = Path(coderoom.sandbox.__file__).parent
MODULE = "guest/cpython.py"
USED = {
    "_io",
    "_io._IOBase",
    "_thread",
    "_thread._count",
    "atexit._ncallbacks",
    "atexit._run_exitfuncs",
    "threading._shutdown",
    "warnings._warn_unawaited_coroutine",
}
PUBLIC = {"os._exit", "sys._getframe"}  # These are documented.


def modules(tree: ast.AST) -> set[str]:
    """The names by which a module knows other modules."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    known = modules(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            if not str(node.module).startswith("coderoom"):
                yield from (name for name in names if any(map(is_private, name.split("."))))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            name = f"{node.value.id}.{node.attr}"
            if is_private(node.attr) and name not in PUBLIC:
                yield name


def test_no_other_module_has_private_names_of_a_library() -> None:
    found = {
        path.relative_to(SANDBOX).as_posix(): set(private_names(path.read_text())) for path in SANDBOX.rglob("*.py")
    }
    assert {file: names for file, names in found.items() if names} == {MODULE: USED}


def test_this_python_has_each_of_them() -> None:
    for name in USED:
        module, _, attribute = name.partition(".")
        __import__(module)
        assert not attribute or callable(getattr(sys.modules[module], attribute))

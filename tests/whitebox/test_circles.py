"""No two files of the package import each other, not even for their types."""

from __future__ import annotations

import ast
import re

from tests.support.commands import ROOT

IMPORT = re.compile(r"^ *(from coderoom[\w.]* import (?:\([^)]*\)|.*))", re.MULTILINE)


def test_no_two_files_import_each_other() -> None:
    files = [path for path in (ROOT / "coderoom").rglob("*.py") if path.name != "__init__.py"]
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        found = imports[module] = set()
        for statement in IMPORT.findall(path.read_text()):
            [node] = ast.parse(statement).body
            assert isinstance(node, ast.ImportFrom)
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)} & modules.keys()
        found.discard(module)  # An example in its docstring.
    assert len(imports["coderoom.sandbox.session"]) > 5
    assert [(a, b) for a in modules for b in imports[a] if a in imports[b]] == []

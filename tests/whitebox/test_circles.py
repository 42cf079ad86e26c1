"""No two files of the package import each other, not even for their types."""

from __future__ import annotations

import ast

from tests.support.commands import ROOT


def test_no_two_files_import_each_other() -> None:
    files = [path for path in (ROOT / "coderoom").rglob("*.py") if path.name != "__init__.py"]
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        found = imports[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & modules.keys()
    assert len(imports["coderoom.sandbox.session"]) > 5
    assert [(a, b) for a in modules for b in imports[a] if a in imports[b]] == []

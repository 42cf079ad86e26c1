"""Exports tests as a pytest file that needs only the standard library and the module."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coderoom._util.text import encodable, visible
from coderoom.generation.languages.python.calls import Written, body_of
from coderoom.generation.languages.python.facts import facts_of, imports_in, modules_of
from coderoom.generation.languages.python.help import HELPERS, help_with

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

__all__ = ["pytest_file"]

_LONGEST = 60
_USED = frozenset(dir(builtins)) | HELPERS | {"after", "given", "names", "result"}
_MODULES = frozenset(
    str.split(
        "asyncio collections datetime decimal enum fractions functools importlib inspect io math os pytest random sys"
    )
)

_FRESH = '''\
@pytest.fixture
def {alias}():
    """The module, imported anew for each test: none finds what another one has left in it."""
    sys.modules.pop({module!r}, None)
    return importlib.import_module({module!r})
'''

_CLEAN = '''\
@pytest.fixture(autouse=True)
def clean_surroundings(monkeypatch, tmp_path):
    """Each test begins in an empty folder with nobody to answer input(); what it changes elsewhere is put back."""
    modules = [importlib.import_module(name) for name in {modules!r}]
    names = [(module, dict(vars(module))) for module in modules]
    environ, limit, numbers = dict(os.environ), sys.getrecursionlimit(), random.getstate()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with decimal.localcontext():
        yield
    for module, before in names:
        for name, value in before.items():
            if vars(module).get(name) is not value:
                setattr(module, name, value)
    sys.setrecursionlimit(limit)
    random.setstate(numbers)
    os.environ.clear()
    os.environ.update(environ)
'''


def pytest_file(
    tests: Mapping[str, Sequence[FunctionTest]],
    module: str,
    implementations: Mapping[str, str] | None = None,
    outputs: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The text of the file.

    Every test begins in a clean state here, and has to do so there: if the code may leave something to later calls, the
    module is imported anew for each test, and what the standard library has of state is put back. That costs little; a
    process for each test would cost more, and be harder to debug. Where nothing can be left, the file has none of it.

    Args:
        tests: The tests by the names of the functions.
        module: The module that has the functions.
        implementations: Their code. The better it is known, the plainer the file can be.
        outputs: What came of the tests, by the names of functions and tests. Plain `==` stands where it passes with
            this, and says as much as `compare` does.
    """
    facts = facts_of(implementations)
    setups = [test.setup for cases in tests.values() for test in cases if test.setup]
    fresh, reaching = facts.state or bool(setups), facts.reaching or bool(setups)
    alias = f"{module}_module" if module in _USED | _MODULES or keyword.issoftkeyword(module) else module
    direct = not fresh and _may_be_imported({*tests, *facts.classes}, {alias, *facts.functions, *facts.classes}, tests)
    written = Written(facts, "" if direct else f"{alias}.", alias)
    parts = _test_functions(tests, written, outputs or {}, alias if fresh else "")
    needs = set(written.needs)
    fixtures = []
    if fresh:
        needs |= {"importlib", "pytest", "sys"}
        fixtures.append(_FRESH.format(alias=alias, module=module))
    if reaching:
        needs |= {"decimal", "importlib", "io", "os", "pytest", "random", "sys"}
        changed = sorted({*facts.modules, *modules_of(imports_in("\n".join(setups)))})
        fixtures.append(_CLEAN.format(modules=changed))
    help_text, more = help_with(needs & HELPERS)
    head = _head(module, alias, (needs | more) & _MODULES, sorted(written.imported) if direct else [], fresh)
    return "\n\n".join([head, *fixtures, *help_text, *parts])


def _head(module: str, alias: str, modules: set[str], names: Sequence[str], fresh: bool) -> str:
    lines = [f'"""Tests of {module}: run them with pytest."""', ""]
    lines += [f"import {each}" for each in sorted(modules - {"pytest"})]
    lines += ["", "import pytest"] if "pytest" in modules else []
    if names:
        line = f"from {module} import {', '.join(names)}"
        if len(line) > 100:
            line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"
        lines += ["", line]
    elif not fresh:
        lines += ["", f"import {module}" + (f" as {alias}" if alias != module else "")]
    text = "\n".join(lines)
    return re.sub("\n{3,}", "\n\n", text) + "\n"


def _may_be_imported(names: set[str], defined: set[str], tests: Mapping[str, Sequence[FunctionTest]]) -> bool:
    """Whether names can stand in the file by themselves: pytest would take some for tests, others are used in it."""
    arguments = {name for cases in tests.values() for test in cases for name in test.inputs if test.property}
    taken = _USED | _MODULES | arguments | {"caught"}
    return names <= defined and not any(name in taken or name.lower().startswith("test") for name in names)


def _test_functions(
    tests: Mapping[str, Sequence[FunctionTest]],
    written: Written,
    outputs: Mapping[str, Mapping[str, Any]],
    fixture: str,
) -> list[str]:
    parts = []
    names: set[str] = set()
    for function, cases in tests.items():
        for test in cases:
            slug = re.sub(r"\W+|_+", "_", test.name, flags=re.ASCII).strip("_").lower()
            name = _unused(f"test_{function}_{slug[:_LONGEST].rstrip('_')}".rstrip("_"), names)
            came = outputs.get(function, {}).get(test.name, ...)
            lines = body_of(function, test, written, came)
            if slug != re.sub(r"[ _-]+", "_", test.name).lower() or len(slug) > _LONGEST:
                told = visible(encodable(" ".join(test.name.split())))
                lines = [f"# {told}".rstrip(), *lines]
            body = "".join(f"    {line}\n" for line in "\n".join(lines).split("\n"))
            parts.append(f"def {name}({fixture}):\n{body}")
    return parts


def _unused(name: str, names: set[str]) -> str:
    """A name that is not there yet: of two functions with one name, Python forgets the first."""
    found, number = name, 1
    while found in names:
        number += 1
        found = f"{name}_{number}"
    names.add(found)
    return found

"""Writes the tests of a program as a file for pytest."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coderoom._util.text import encodable, visible
from coderoom.generation.languages.python.check import parsed_expression
from coderoom.generation.languages.python.module import HELPERS, Facts, facts_of, help_with, imports_in, modules_of
from coderoom.generation.values import canonical, decode, fields_of, tag_of

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

__all__ = [
    "Literals",
    "Written",
    "body_of",
    "pytest_file",
    "text_literal",
    "wrapped",
]

_WIDTH = 100
_MOST_BITS = 13_000  # By default, Python parses decimal integers of at most 4,300 digits.
_PREFIXES = {
    "$decimal": "decimal.",
    "$fraction": "fractions.",
    "$datetime": "",
    "$date": "",
    "$time": "",
    "$timedelta": "",
}


class Literals:
    """Writes tagged data as Python expressions, and collects what these need.

    Attributes:
        needs: The modules and helpers that the expressions need.
    """

    def __init__(self) -> None:
        self.needs: set[str] = set()

    def given(self, data: Any) -> str:
        """An argument of a call: the value that `decode` returns."""
        return self._write(data, False)

    def expected(self, data: Any) -> str:
        """An expected value; members of enums and arrays are represented by helpers."""
        return self._write(data, True)

    def _write(self, data: Any, expected: bool) -> str:
        tag, content = tag_of(data)
        if tag == "list":
            return wrapped("[", [self._write(item, expected) for item in content], "]")
        if tag in ("$tuple", "$set", "$frozenset"):
            return _of_items(tag, [self._write(item, expected) for item in content])
        if tag == "$dict":
            pairs = [f"{self._write(key, expected)}: {self._write(item, expected)}" for key, item in content]
            return wrapped("{", pairs, "}")
        if tag in ("int", "$int"):
            number = content if tag == "int" else int(content, 16)
            return repr(number) if number.bit_length() <= _MOST_BITS else hex(number)
        if tag == "$float":
            self.needs.add("math")
            return f"-math.{content[1:]}" if content.startswith("-") else f"math.{content}"
        if tag == "$complex":
            return f"complex({', '.join(self._write(part, expected) for part in content)})"
        if tag in ("$object", "$namedtuple", "$enum", "$array"):
            return self._of_class(tag, content, expected)
        return self._leaf(tag, data)

    def _leaf(self, tag: str, data: Any) -> str:
        value = decode(data)
        if isinstance(value, str):
            return text_literal(value)
        if tag in _PREFIXES:
            text = f"{_PREFIXES[tag]}{value!r}"
            self.needs.update(re.findall(r"\b(datetime|decimal|fractions)\.", text))
            return text
        return repr(value)

    def _of_class(self, tag: str, content: Any, expected: bool) -> str:
        if tag == "$array":
            return self._array(content) if expected else self._write(content["items"], False)
        if tag == "$enum" and expected:
            self.needs.add("Member")
            return f"Member({text_literal(content['type'])}, {text_literal(str(content['name']))})"
        if tag == "$enum" and content.get("mixed") is True:
            return self._write(content["value"], False)
        if tag == "$enum":
            fields = [["name", content["name"]], ["value", content["value"]]]
        else:
            named: dict[str, Any] = {}
            for name, item in fields_of(content):
                named[name] = item  # The last of several items with one name counts.
            fields = [[*pair] for pair in named.items()]
        kind = text_literal(content["type"])
        if tag == "$namedtuple":
            self.needs.add("collections")
            names = ", ".join(text_literal(name) for name, _ in fields)
            values = [self._write(item, expected) for _, item in fields]
            return wrapped(f"collections.namedtuple({kind}, [{names}])(", values, ")")
        self.needs.add("Record")
        pairs = [f"{text_literal(name)}: {self._write(item, expected)}" for name, item in fields]
        return wrapped(f"Record({kind}, {{", pairs, "})")

    def _array(self, content: Any) -> str:
        self.needs.add("Array")
        facts = [self._write(content["items"], True)]
        for name in ("dtype", "shape"):
            if content.get(name) is not None:
                facts.append(f"{name}={self._write(content[name], True)}")
        return wrapped("Array(", facts, ")")


def text_literal(text: str) -> str:
    """Text as a one-line literal in which all characters are visible."""
    plain = visible(text) == text and "\x7f" not in text
    return repr(text) if plain else ascii(text)


def _of_items(tag: str, items: list[str]) -> str:
    if tag == "$tuple":
        return f"({items[0]},)" if len(items) == 1 else wrapped("(", items, ")")
    if tag == "$set":
        return wrapped("{", items, "}") if items else "set()"
    return wrapped("frozenset({", items, "})") if items else "frozenset()"


def wrapped(opening: str, items: list[str], closing: str) -> str:
    """Items in one line, or in a line each if they are too long."""
    line = f"{opening}{', '.join(items)}{closing}"
    if (len(line) <= _WIDTH and "\n" not in line) or not items:
        return line
    rows = "".join(f"    {item},\n".replace("\n", "\n    ")[:-4] for item in items)
    return f"{opening}\n{rows}{closing}"


_POSITIONAL = 3
_CALL_WIDTH = 110
_PREDICATES = frozenset(["all", "any", "isinstance", "issubclass", "callable", "bool"])
_METHODS = frozenset(str.split("startswith endswith issubset issuperset isdisjoint isdigit isalpha islower isupper"))


class Written(Literals):
    """The state of writing the tests of one file.

    Attributes:
        facts: Facts about the program.
        prefix: The prefix of the program's names.
        module: The name of the module in the file.
        imported: The names of the program that are used.
    """

    def __init__(self, facts: Facts, prefix: str, module: str) -> None:
        super().__init__()
        self.facts = facts
        self.prefix = prefix
        self.module = module
        self.imported: set[str] = set()

    def named(self, name: str) -> str:
        """A name of the program."""
        self.imported.add(name)
        return f"{self.prefix}{name}"

    def helper(self, name: str) -> str:
        """A helper or a module."""
        self.needs.add(name)
        return name


def body_of(function: str, test: FunctionTest, written: Written, actual: Any) -> list[str]:
    """The lines of a test.

    Args:
        function: The function.
        test: The test.
        written: The state; the needs of the lines are added to it.
        actual: What the function returned, as tagged data; `...` if unknown.
    """
    before, call = _call(function, test, written)
    if test.expects == "error":
        return _raises(test, written, before, call)
    if test.expects == "property":
        return [*before, *_holds(test, written, call, actual)]
    return [*before, *_equals(test, written, call, actual)]


def _call(function: str, test: FunctionTest, written: Written) -> tuple[list[str], str]:
    """The lines before the call, and the call."""
    node = written.facts.functions.get(function)
    bare = node is not None and not node.decorator_list
    first = [each.arg for each in node.args.posonlyargs] if node is not None and bare else []
    name = written.named(function)
    values = {argument: written.given(data) for argument, data in test.inputs.items()}
    before = []
    if test.setup:
        lines = [text_literal(line) for line in test.setup.splitlines(keepends=True)]
        given = wrapped("{", [f"{text_literal(each)}: {value}" for each, value in values.items()], "}")
        code = lines[0] if len(lines) == 1 else "\n" + "".join(f"    {line}\n" for line in lines)
        before = [f"names = {{**vars({written.module}), 'inputs': {given}}}"]
        before += [f"exec(compile({code}, '<setup>', 'exec'), names)", "given = names['inputs']"]
        before += ["after = dict(given)"] if test.sees_after else []
        popped = f"*[given.pop(name) for name in {first!r} if name in given], "
        call = f"{name}({popped if first else ''}**given)"
    else:
        if test.sees_after:
            shown = [f"{text_literal(each)}: {value}" for each, value in values.items()]
            before = [f"after = {wrapped('{', shown, '}')}"]
            values = {each: f"after[{text_literal(each)}]" for each in values}
        call = wrapped(f"{name}(", _arguments(node if bare else None, first, values), ")")
    if bare and isinstance(node, ast.AsyncFunctionDef):
        return before, f"{written.helper('asyncio')}.run({call})"
    return before, f"{written.helper('finished')}({call})" if written.facts.coroutines else call


def _arguments(node: Any, first: list[str], values: dict[str, str]) -> list[str]:
    """Write few arguments by position if possible, and more by name, which is easier to read."""
    order = [*first, *(each.arg for each in node.args.args)] if node is not None else []
    given = [name for name in order if name in values]
    count = len(given) if given == order[: len(given)] and len(values) <= _POSITIONAL else 0
    at = given[:count] or [name for name in first if name in values]
    return [*(values[name] for name in at), *(f"{name}={value}" for name, value in values.items() if name not in at)]


def _raises(test: FunctionTest, written: Written, before: list[str], call: str) -> list[str]:
    expected = test.expected_error or ""
    own = expected in written.facts.classes
    known = isinstance(getattr(builtins, expected, None), type)
    kind = expected if known else written.named(expected) if own else "BaseException"
    message = test.error_message is not None and test.error_message != ""
    caught = " as caught" if message or not (known or own) else ""
    lines = [*before, f"with {written.helper('pytest')}.raises({kind}){caught}:"]
    lines += [f"    {line}" for line in call.split("\n")]
    if not known and not own:
        lines.append(f"assert {text_literal(expected)} in [each.__name__ for each in caught.type.__mro__]")
    if message:
        lines.append(f"assert {text_literal((test.error_message or '').lower())} in str(caught.value).lower()")
    return lines


def _holds(test: FunctionTest, written: Written, call: str, actual: Any) -> list[str]:
    """The property as code if that is equivalent, and as text for `eval` otherwise."""
    text = (test.property or "").strip()
    tree = parsed_expression(text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    result = call if written.facts.plain and _is_plain(actual) else f"{written.helper('as_data')}({call})"
    given = {name: written.given(data) for name, data in test.inputs.items() if name in names and name != "result"}
    if "math" in names and "math" not in given:
        written.helper("math")
    results = [f"result = {result}"]
    results += [f"after = {written.helper('as_data')}(after)"] if test.sees_after else []
    odd = any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr) for node in ast.walk(tree))
    # A local name of the test must not hide another name that it uses.
    taken = (names | bound | set(given)) & {written.module, *written.facts.functions} or written.needs & set(given)
    if odd or taken or "\n" in text or "\r" in text or "\f" in text or "#" in text or "lambda" in text:
        shown = [f"{text_literal(name)}: {value}" for name, value in {**given, "result": "result"}.items()]
        shown += [] if "math" in given or "math" not in names else ["'math': math"]
        shown += ["'after': after"] if test.sees_after else []
        return [
            *results,
            f"given = {wrapped('{', shown, '}')}",
            f"assert eval({text_literal(text)}, given) is True",
        ]
    lines = [*results, *(f"{name} = {value}" for name, value in given.items())]
    return [*lines, f"assert {text}" if _is_bool(tree) else f"assert ({text}) is True"]


def _is_bool(node: ast.expr) -> bool:
    """Whether an expression over data always has a boolean value."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_bool, node.values))
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in _METHODS
        return isinstance(node.func, ast.Name) and node.func.id in _PREDICATES
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _equals(test: FunctionTest, written: Written, call: str, actual: Any) -> list[str]:
    expected = test.expected_output
    text = written.expected(expected)
    if written.facts.plain:
        if expected is None or type(expected) is bool:
            return _asserted(call, "is", text)
        if tag_of(expected)[0] == "int" and type(actual) is int and expected in (0, 1):
            # In Python, True == 1.
            return [f"result = {call}", f"assert result == {text} and result is not {bool(expected)}"]
        if tag_of(expected)[0] == "str" or (actual is not ... and _says_all(expected, actual, test.exact_types)):
            return _asserted(call, "==", text)
    given = test.model_dump(include={"rel", "abs"}, exclude_defaults=True)
    more = [f"{name}={given[name]!r}" for name in ("rel", "abs") if name in given]
    more += ["exact=True"] if test.exact_types else []
    lines = []
    if len(call) + len(text) > _CALL_WIDTH or "\n" in call + text:
        lines, call, text = [f"result = {call}", f"expected = {text}"], "result", "expected"
    return [*lines, f"assert {written.helper('same')}({', '.join([call, text, *more])})"]


def _asserted(call: str, sign: str, text: str) -> list[str]:
    if len(call) + len(text) > _CALL_WIDTH or "\n" in call:
        return [f"result = {call}", f"assert result {sign} {text}"]
    return [f"assert {call} {sign} {text}"]


def _says_all(expected: Any, actual: Any, exact: bool) -> bool:
    """Whether `==` passes for the actual value and is as strict as `compare` for any other one."""
    return canonical(expected) == canonical(actual) and _is_simple(expected, exact)


def _is_simple(data: Any, exact: bool) -> bool:
    """Whether no part equals a value of another type, as 1 equals True."""
    tag, content = tag_of(data)
    if tag == "list" or (tag in ("$tuple", "$set") and not exact):
        return all(_is_simple(item, exact) for item in content)
    if tag == "$dict":
        return all(_is_simple(key, exact) and _is_simple(item, exact) for key, item in content)
    return data is None or tag == "str" or (tag == "int" and data not in (0, 1))


def _is_plain(data: Any) -> bool:
    """Whether the value itself and its form as data look the same to a property."""
    tag, content = tag_of(data)
    if tag in ("list", "$tuple", "$set", "$frozenset"):
        return all(map(_is_plain, content))
    if tag == "$dict":
        return all(_is_plain(key) and _is_plain(item) for key, item in content)
    return data is not ... and tag not in ("$object", "$namedtuple", "$enum", "$array", "$opaque", "?")


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
    """The module, imported again for each test, so that no test sees what another one left in it."""
    sys.modules.pop({module!r}, None)
    return importlib.import_module({module!r})
'''

_CLEAN = '''\
@pytest.fixture(autouse=True)
def clean_surroundings(monkeypatch, tmp_path):
    """Each test starts in an empty folder without input; what it changes elsewhere is restored."""
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
    """The content of the file.

    In CodeRoom every test starts in a clean state, and the file does the same: if the code may leave something behind,
    the module is imported again for each test and the state of the standard library is restored. That is cheaper and
    easier to debug than a process for each test. If the code leaves nothing behind, the file has no such fixtures.

    Args:
        tests: The tests by function name.
        module: The module with the functions.
        implementations: The code of the functions, which allows a simpler file; `None`: unknown.
        outputs: The actual outputs, by function and test name. Plain `==` is used where it passes with these and is as
            strict as `compare`.
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
    """Whether names can be imported into the file: pytest would collect some as tests, others are used in it."""
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
            actual = outputs.get(function, {}).get(test.name, ...)
            lines = body_of(function, test, written, actual)
            if slug != re.sub(r"[ _-]+", "_", test.name).lower() or len(slug) > _LONGEST:
                title = visible(encodable(" ".join(test.name.split())))
                lines = [f"# {title}".rstrip(), *lines]
            body = "".join(f"    {line}\n" for line in "\n".join(lines).split("\n"))
            parts.append(f"def {name}({fixture}):\n{body}")
    return parts


def _unused(name: str, names: set[str]) -> str:
    """A name that is not used yet, since the second of two functions with one name would replace the first."""
    found, number = name, 1
    while found in names:
        number += 1
        found = f"{name}_{number}"
    names.add(found)
    return found

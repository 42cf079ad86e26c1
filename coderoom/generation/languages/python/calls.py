"""Writes the body of one test in a pytest file."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Any

from coderoom.generation.languages.python.facts import Facts
from coderoom.generation.languages.python.literals import Literals, text_literal, wrapped
from coderoom.generation.parsing import parsed_expression
from coderoom.generation.testing.values import canonical, tag_of

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

__all__ = ["Written", "body_of"]

_POSITIONAL = 3
_WIDTH = 110
_PREDICATES = frozenset(["all", "any", "isinstance", "issubclass", "callable", "bool"])
_METHODS = frozenset(str.split("startswith endswith issubset issuperset isdisjoint isdigit isalpha islower isupper"))


class Written(Literals):
    """What is known while the tests of a file are written, and what they turn out to need.

    Attributes:
        facts: What is known of the program.
        prefix: What stands before the program's names.
        module: What the module is called in the file.
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


def body_of(function: str, test: FunctionTest, written: Written, came: Any) -> list[str]:
    """The lines of a test.

    Args:
        function: The function.
        test: The test.
        written: What is known; what the lines need is noted in it.
        came: What the function has returned, as tagged data; `...` if nobody knows.
    """
    before, call = _call(function, test, written)
    if test.expects == "error":
        return _raises(test, written, before, call)
    if test.expects == "property":
        return [*before, *_holds(test, written, call, came)]
    return [*before, *_equals(test, written, call, came)]


def _call(function: str, test: FunctionTest, written: Written) -> tuple[list[str], str]:
    """What comes before the call, and the call."""
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
    """Few arguments stand by their position, if it is theirs; more are easier to read with their names."""
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


def _holds(test: FunctionTest, written: Written, call: str, came: Any) -> list[str]:
    """The property as code where that means the same, and as text otherwise."""
    text = (test.property or "").strip()
    tree = parsed_expression(text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    result = call if written.facts.plain and _is_plain(came) else f"{written.helper('as_data')}({call})"
    given = {name: written.given(data) for name, data in test.inputs.items() if name in names and name != "result"}
    if "math" in names and "math" not in given:
        written.helper("math")
    results = [f"result = {result}"]
    results += [f"after = {written.helper('as_data')}(after)"] if test.sees_after else []
    odd = any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr) for node in ast.walk(tree))
    # A name that the test itself gives a value to cannot be that of something else in the test.
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
    """Whether an expression over data can only be true or false."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_bool, node.values))
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in _METHODS
        return isinstance(node.func, ast.Name) and node.func.id in _PREDICATES
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _equals(test: FunctionTest, written: Written, call: str, came: Any) -> list[str]:
    expected = test.expected_output
    text = written.expected(expected)
    if written.facts.plain:
        if expected is None or type(expected) is bool:
            return _asserted(call, "is", text)
        if tag_of(expected)[0] == "int" and type(came) is int and expected in (0, 1):
            # For Python, True is 1.
            return [f"result = {call}", f"assert result == {text} and result is not {bool(expected)}"]
        if tag_of(expected)[0] == "str" or (came is not ... and _says_all(expected, came, test.exact_types)):
            return _asserted(call, "==", text)
    more = [f"{name}={getattr(test, name)!r}" for name in ("rel", "abs") if getattr(test, name) != _default(name)]
    more += ["exact=True"] if test.exact_types else []
    lines = []
    if len(call) + len(text) > _WIDTH or "\n" in call + text:
        lines, call, text = [f"result = {call}", f"expected = {text}"], "result", "expected"
    return [*lines, f"assert {written.helper('same')}({', '.join([call, text, *more])})"]


def _asserted(call: str, sign: str, text: str) -> list[str]:
    if len(call) + len(text) > _WIDTH or "\n" in call:
        return [f"result = {call}", f"assert result {sign} {text}"]
    return [f"assert {call} {sign} {text}"]


def _default(name: str) -> Any:
    return FunctionTest.model_fields[name].default


def _says_all(expected: Any, came: Any, exact: bool) -> bool:
    """Whether `==` passes with what came, and is as strict as `compare` is with what else may come."""
    return canonical(expected) == canonical(came) and _is_simple(expected, exact)


def _is_simple(data: Any, exact: bool) -> bool:
    """Whether no part of it is equal to something of another type: as 1 is to True, and to 1.0000000000000002."""
    tag, content = tag_of(data)
    if tag == "list" or (tag in ("$tuple", "$set") and not exact):
        return all(_is_simple(item, exact) for item in content)
    if tag == "$dict":
        return all(_is_simple(key, exact) and _is_simple(item, exact) for key, item in content)
    return data is None or tag == "str" or (tag == "int" and data not in (0, 1))


def _is_plain(data: Any) -> bool:
    """Whether it is what it is as data too, or the same for a property."""
    tag, content = tag_of(data)
    if tag in ("list", "$tuple", "$set", "$frozenset"):
        return all(map(_is_plain, content))
    if tag == "$dict":
        return all(_is_plain(key) and _is_plain(item) for key, item in content)
    return data is not ... and tag not in ("$object", "$namedtuple", "$enum", "$array", "$opaque", "?")

"""Tests as a file for pytest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from coderoom.generation._tests import FunctionTest
from coderoom.generation._values import decode, fields_of, tag_of

__all__ = ["literal", "pytest_file"]

_ITEMS = {"$tuple": "tuple([{}])", "$set": "set([{}])", "$frozenset": "frozenset([{}])"}
_PLAIN = ("$bytes", "$bytearray", "$str", "$complex", "$int")


def pytest_file(tests: Mapping[str, Sequence[FunctionTest]], module: str) -> str:
    """The text of the file.

    Args:
        tests: The tests by the names of the functions.
        module: The module that has the functions.
    """
    parts = [
        "import datetime\nimport decimal\nimport fractions\nimport math\nimport types\n\nimport pytest\n\n"
        f"import {module}\n"
    ]
    for function, cases in tests.items():
        for number, test in enumerate(cases, 1):
            slug = re.sub(r"\W+", "_", test.name, flags=re.ASCII).strip("_").lower()[:50]
            parts.append(
                f"def test_{function}_{number}{'_' + slug if slug else ''}():\n{_body(function, test, module)}"
            )
    return "\n\n".join(parts)


def _body(function: str, test: FunctionTest, module: str) -> str:
    given = ", ".join(f"{name!r}: {literal(data)}" for name, data in test.inputs.items())
    lines = [f"inputs = {{{given}}}"]
    if test.setup:
        lines += [f"exec({test.setup!r}, {{**vars({module}), 'inputs': inputs}})"]
    call = f"{module}.{function}(**inputs)"
    if test.expects == "error":
        # An exception of the program's own is there by its name.
        kind = f"getattr({module}, {test.expected_error!r}, None) or {test.expected_error}"
        match = f", match={'(?i)' + re.escape(test.error_message)!r}" if test.error_message else ""
        lines += [f"with pytest.raises({kind}{match}):", f"    {call}"]
    elif test.expects == "property":
        names = ", ".join([f"{name!r}: {literal(data)}" for name, data in test.inputs.items()])
        lines += [f"result = {call}", f"names = {{{names}{', ' if names else ''}'result': result, 'math': math}}"]
        lines += [f"assert eval({test.property!r}, names) is True"]
    else:
        lines += [f"result = {call}", f"assert {_equal(test)}"]
    return "".join(f"    {line}\n" for line in lines)


def _equal(test: FunctionTest) -> str:
    expected = test.expected_output
    text = literal(expected)
    tag = tag_of(expected)[0]
    if text == "math.nan":
        return "math.isnan(result)"
    if tag in ("float", "int"):
        return f"result == pytest.approx({text}, rel={test.rel!r}, abs={test.abs!r})"
    if expected is None or isinstance(expected, bool):
        return f"result is {text}"
    return f"{'list(result)' if tag == 'list' and not test.exact_types else 'result'} == {text}"


def literal(data: Any) -> str:
    """Tagged data as an expression of Python; objects are namespaces with their fields."""
    tag, content = tag_of(data)
    if tag == "list":
        return f"[{', '.join(map(literal, content))}]"
    if tag == "$dict":
        return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in content)}}}"
    if tag in _ITEMS:
        return _ITEMS[tag].format(", ".join(map(literal, content)))
    if tag == "$float":
        return f"-math.{content[1:]}" if content.startswith("-") else f"math.{content}"
    if tag in ("$object", "$namedtuple"):
        return f"types.SimpleNamespace({', '.join(f'{name}={literal(item)}' for name, item in fields_of(content))})"
    value = decode(data)
    if not tag.startswith("$") or tag in _PLAIN:
        return repr(value)
    module = {"$decimal": "decimal.", "$fraction": "fractions."}.get(tag, "")
    return f"{module}{value!r}"

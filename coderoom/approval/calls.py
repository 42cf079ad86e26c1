"""A question about one call of a function of the host, and the call as Python: what is shown, and what is read back."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Mapping
from copy import deepcopy
from keyword import iskeyword
from typing import Any, Final, Literal, Self

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from pydantic import Field, PrivateAttr

from coderoom.blocks import extract_code_blocks, fence
from coderoom.sandbox import HostFunction
from coderoom.sandbox.functions.function import Arguments, as_data, default_of
from coderoom.sandbox.functions.schemas import FOR_ANYTHING
from coderoom.sandbox.guest.values import as_argument

_WIDTH: Final = 100
_INDENT: Final = "    "
_LONGEST_LINE: Final = _WIDTH - len(_INDENT)
_DEEPEST_LINES: Final = 10
_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN: Final = re.compile("[A-Za-z]")
# Greek, Cyrillic, Armenian, Cherokee, full width, and mathematical ones.
_ALIKE: Final = re.compile("[\u0370-\u058f\u13a0-\u13ff\uab70-\uabbf\uff21-\uff5a\U0001d400-\U0001d7ff]")

Given = tuple[list[Any], dict[str, Any]]
"""The positional and the named arguments of a call, as data."""


class Always(ApprovalResponse):
    """A yes to this call, and to all later ones of the function in this session of the agent.

    In a branch, to those of this branch; if it goes on, to those of the session from then on.
    Those that ask persons say yes to them then; rules, models and others of a chain are asked about each call.
    """

    approved: Literal[True] = True
    always: Literal[True] = True


class CallRequest(ApprovalRequest):
    """A question about a call that code makes, and that waits for the answer.

    `code` is the call as Python, in a fence. An `Edited` answer has another call of the function, with literals as
    arguments. A no is an exception in the code.

    Attributes:
        function: The function's name.
        arguments: The arguments by their names, as data.
        agent: The agent whose code makes the call; empty if that is not known.
        block: The code that makes the call, as Markdown.
        always: Whether a person has said yes to all calls of this function in this session, or in this branch of it.
        branch: The branch whose code makes the call; empty outside of one.
    """

    function: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    agent: str = ""
    block: str = ""
    always: bool = False
    branch: str = ""
    _function: HostFunction | None = PrivateAttr(default=None)
    _shown: set[str] = PrivateAttr(default_factory=set)

    @classmethod
    def about(cls, function: HostFunction, gets: Given, shown: set[str] | None = None, **facts: Any) -> Self:
        """The question about a call of a function, whose arguments are copied.

        Args:
            function: The function.
            gets: What `checked_data` makes of the arguments.
            shown: Where the code that makes the call was shown before; where it will be is added.
            facts: The other fields.
        """
        gets = deepcopy(gets)
        arguments = arguments_by_name(function.signature, gets)
        request = cls(code=as_python(function, gets), function=function.name, arguments=arguments, **facts)
        request._function = function
        request._shown = set() if shown is None else shown
        return request

    def given(self, code: str) -> Given:
        """The arguments of an edited call.

        Raises:
            ValueError: It is no call of the function with literals, or its arguments do not fit; in a sentence.
        """
        assert self._function is not None
        blocks = extract_code_blocks(code)
        given = parse_call(self.function, (blocks[0].code if len(blocks) == 1 else code).strip())
        try:
            self._function.check(*deepcopy(given))
        except Exception as error:  # A check can be any code.
            raise ValueError(f"{error}.") from error
        return given

    def edited(self, code: str) -> Self:
        """The question about another call of the function; raises as `given`."""
        assert self._function is not None
        facts = {name: getattr(self, name) for name in ("context", "agent", "block", "always", "branch")}
        return self.about(self._function, checked_data(self._function, self.given(code)), self._shown, **facts)

    def is_new_to(self, place: str) -> bool:
        """Whether the code that makes the call was not shown in this place yet, which it is then."""
        is_new = place not in self._shown
        self._shown.add(place)
        return is_new

    def lines(self) -> list[str]:
        """The lines of the code that make such calls, with their numbers; none if they do not name the function."""
        found: list[str] = []
        for block in extract_code_blocks(self.block):
            lines = block.code.splitlines()
            found += [f"{number}: {lines[number - 1].strip()}" for number in _calling(block.code, self.function)]
        return found

    @property
    def title(self) -> str:
        """What waits, in words."""
        who = f" by {self.agent}" if self.agent else ""
        where = f" in branch {self.branch}" if self.branch else ""
        return f"A call of {self.function}(){who}{where} that waits for approval"


def checked_data(function: HostFunction, given: Given, checked: Arguments | None = None) -> Given:
    """A copy of the arguments as the function gets them; each that is no data, as it was sent, if it was.

    Args:
        function: The function.
        given: The arguments as they were sent.
        checked: What its check has made of them, if that is done: another time it may make something else of them.
    """
    checked = function.check(*deepcopy(given)) if checked is None else checked
    kwargs = checked.kwargs if checked.seen is None else checked.seen
    try:
        sent, gets = (function.signature.bind(*args, **named) for args, named in (given, (checked.args, kwargs)))
    except TypeError:
        return deepcopy(given)
    gap = False
    for name, value in list(gets.arguments.items()):
        is_positional = function.signature.parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY
        try:
            gets.arguments[name], is_data = deepcopy(as_data(function.name, value)), True
        except Exception:  # It can be any object.
            is_data = False
        if name in sent.arguments:
            gets.arguments[name] = gets.arguments[name] if is_data else deepcopy(sent.arguments[name])
        elif not is_data or (gap and is_positional):
            del gets.arguments[name]  # A default; those that have no name and come after it cannot be there, either.
            gap = True
    return list(gets.args), gets.kwargs


def arguments_by_name(signature: inspect.Signature, given: Given) -> dict[str, Any]:
    """All arguments by their names, with defaults that are data; of a call that does not fit, those with a name."""
    try:
        found = dict(signature.bind(*given[0], **given[1]).arguments)
    except TypeError:
        return dict(given[1])
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:  # Of the same name as another parameter, it does not hide that.
            found = found.pop(name, {}) | found
        elif name not in found and (value := _default_of(parameter)) is not parameter.empty:
            found[name] = value
    return found


def bound_arguments(signature: inspect.Signature, given: Given) -> dict[str, Any]:
    """The same with what `*args` and `**kwargs` are bound to, under their own names, also if that is empty."""
    found = arguments_by_name(signature, given)
    try:
        bound = signature.bind(*given[0], **given[1]).arguments
    except TypeError:
        return found
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found[name] = bound.get(name, ())
        elif parameter.kind is parameter.VAR_KEYWORD and parameter is not FOR_ANYTHING:
            found[name] = bound.get(name, {})
    return found


def _default_of(parameter: inspect.Parameter) -> Any:
    """A parameter's default as data; `empty` if there is none."""
    try:
        value = default_of(parameter)
        return value if value is parameter.empty else as_data(parameter.name, value)
    except Exception:  # It can be any object.
        return parameter.empty


def as_python(function: HostFunction, given: Given) -> str:
    """A call as a block of Python: whole, with literals as arguments, which are named if that is possible."""
    args, kwargs = _named(function.signature, given)
    parts = [_literal(value) for value in args]
    # Code chooses those that are no parameters: Python would take some for others, and some are none to it.
    plain = {name for name in kwargs if name in function.signature.parameters or _is_name(name)}
    parts += [f"{name}={_literal(value)}" for name, value in kwargs.items() if name in plain]
    others = {name: value for name, value in kwargs.items() if name not in plain}
    parts += [f"**{_literal(others)}"] if others else []
    line = f"{function.name}({', '.join(parts)})"
    if len(line) > _WIDTH or "\n" in line:
        # No literal has a line break in it, so that all lines can be indented.
        lines = "".join(f"{part},\n" for part in parts).replace("\n", f"\n{_INDENT}").rstrip(" ")
        line = f"{function.name}(\n{_INDENT}{lines})"
    return fence(line, "python")


def _calling(code: str, function: str) -> list[int]:
    """The numbers of the lines that call a function by its name."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = (node.func for node in nodes if isinstance(node, ast.Call))
    return sorted({name.lineno for name in names if isinstance(name, ast.Name) and name.id == function})


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not iskeyword(name)


def _named(signature: inspect.Signature, given: Given) -> Given:
    try:
        bound = signature.bind(*given[0], **given[1]).arguments
    except TypeError:
        return given
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    if any(kinds[name] is inspect.Parameter.VAR_POSITIONAL for name in bound):
        return given
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in bound.items():
        if kinds[name] is inspect.Parameter.POSITIONAL_ONLY:
            args.append(value)
        elif kinds[name] is inspect.Parameter.VAR_KEYWORD:
            kwargs |= value
        else:
            kwargs[name] = value
    return args, kwargs


def _literal(value: Any, deep: int = 0) -> str:
    """A literal, in lines if it is long. Code chooses the value: unlike `pformat`, it takes time as its length only."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({repr(value)!r})"
    if isinstance(value, str):
        if len(text := _text(value)) > _LONGEST_LINE and len(lines := value.splitlines(keepends=True)) > 1:
            return "(" + "\n ".join(map(_text, lines)) + ")"
        return text
    if isinstance(value, dict):
        begin, parts, end = "{", [f"{_text(key)}: {_literal(item, deep + 1)}" for key, item in value.items()], "}"
    elif isinstance(value, list | tuple):
        begin, parts, end = "[", [_literal(item, deep + 1) for item in value], "]"
    else:
        return repr(value)
    line = f"{begin}{', '.join(parts)}{end}"
    if deep >= _DEEPEST_LINES or (len(line) <= _LONGEST_LINE and "\n" not in line):
        return line
    return begin + ",\n".join(parts).replace("\n", "\n ") + end


def _text(value: str) -> str:
    """A literal of a text. Letters of another alphabet in a Latin word, which may look like it, are escaped."""
    shown = repr(value)
    if not value.isascii():
        words = (word for word in _WORD.findall(value) if _LATIN.search(word))
        for letter in {letter for word in words for letter in _ALIKE.findall(word)}:
            shown = shown.replace(letter, ascii(letter)[1:-1])
    return shown


def parse_call(name: str, code: str) -> Given:
    """Read a call of a function with literals as arguments.

    Raises:
        ValueError: It is something else; the message says what, in a sentence.
    """
    try:
        call = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"It is no single call of {name}(): {getattr(error, 'msg', error)}.") from error
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name):
        raise ValueError(f"Only the arguments can be changed: it must be one call of {name}().")
    args = [_value(name, place, node) for place, node in enumerate(call.args, 1)]
    kwargs: dict[str, Any] = {}
    for keyword in call.keywords:
        value = _value(name, keyword.arg or "**", keyword.value)
        more: Mapping[Any, Any] = {keyword.arg: value} if keyword.arg else value if isinstance(value, dict) else {"": 0}
        if wrong := [key for key in more if not (key and isinstance(key, str)) or key in kwargs]:
            raise ValueError(f"{name}(): the argument {wrong[0]!r} stands twice, or is not a name.")
        kwargs |= more
    return args, kwargs


def _value(name: str, which: str | int, node: ast.expr) -> Any:
    try:
        return as_argument(name, which, ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{name}(): the argument {which} must be a literal, such as 5 or 'text'.") from error

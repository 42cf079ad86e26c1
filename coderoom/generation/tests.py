"""Tests of functions: reading, checking, freezing and changing them."""

from __future__ import annotations

import ast
import builtins
import hashlib
import symtable
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_serializer, model_validator

from coderoom.errors import GenerationError
from coderoom.generation.languages.python.check import UNREADABLE, check_setup, parsed_expression
from coderoom.generation.specs import FunctionSpec, name_problem, problems_of
from coderoom.generation.values import canonical, decode, tag_of

if TYPE_CHECKING:
    from coderoom.generation.languages import Language

if TYPE_CHECKING:
    from coderoom.generation.runner import TestRunner

__all__ = [
    "FrozenTests",
    "FunctionTest",
    "TestChange",
    "changed",
    "freeze",
    "read_tests",
    "say_nothing",
    "what_it_says",
    "why_too_wide",
]

_LONGEST = 20_000
_OPEN = frozenset(dir(builtins)) | {"math"}
_EXPECTATIONS = ("expected_output", "expected_error", "property")
_OPTIONAL = ("setup", "error_message", "rel", "abs", "exact_types")


class FunctionTest(BaseModel):
    """A call of a function, and what is expected of it: an output, an error or a property.

    Attributes:
        name: What it is about.
        kind: Whether it is an ordinary case, one at an edge, or one that is to fail.
        inputs: The arguments by their names, as tagged data.
        expected_output: What is to be returned, as tagged data.
        expected_error: The name of the exception that is to be raised, or of a class above it.
        error_message: Text that the exception's message has to contain, in whatever case.
        property: An expression of Python over `result` and the names of the inputs, as they were, that is to be `True`;
            objects stand in it with their fields as attributes. The dict `after` has the arguments as the call has left
            them, by their names; where one of them is called so, the name means that one.
        setup: Code that runs before the call. It may change the dict `inputs`, whose values are what the function is
            called with, and bring the program into a state by calling its functions; see `check_setup`.
        rel: How far floats may be apart, as a part of the larger one.
        abs: How far they may always be apart.
        exact_types: Whether a list that is expected has to be a list; see `compare`.
    """

    __test__: ClassVar[bool] = False
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=300)
    kind: Literal["normal", "edge", "error"] = "normal"
    inputs: dict[str, Any] = Field(default_factory=dict)
    expected_output: Any = None
    expected_error: str | None = Field(default=None, max_length=100)
    error_message: str | None = Field(default=None, max_length=_LONGEST)
    property: str | None = Field(default=None, max_length=_LONGEST)
    setup: str | None = Field(default=None, max_length=_LONGEST)
    rel: float = Field(default=1e-9, ge=0, le=1, allow_inf_nan=False)
    abs: float = Field(default=1e-12, ge=0, allow_inf_nan=False)
    exact_types: bool = False

    @model_validator(mode="before")
    @classmethod
    def _forget_nulls(cls, data: Any) -> Any:
        """Models write `null` for what they leave open; only a lone `expected_output` may mean it."""
        if not isinstance(data, Mapping):
            return data
        given = {
            key: value for key, value in data.items() if value is not None or key not in (*_OPTIONAL, *_EXPECTATIONS)
        }
        if "expected_output" in data and not any(key in given for key in _EXPECTATIONS):
            given["expected_output"] = None
        return given

    @model_validator(mode="after")
    def _check(self) -> FunctionTest:
        given = [key for key in _EXPECTATIONS if key in self.model_fields_set]
        if len(given) != 1:
            found = " and ".join(given) if given else "none"
            raise ValueError(f"exactly one of {', '.join(_EXPECTATIONS)} is needed, and there is {found}")
        if self.error_message is not None and self.expected_error is None:
            raise ValueError("error_message stands only beside expected_error")
        for name, data in self.inputs.items():
            problem = name_problem(name)
            if problem is not None:
                raise ValueError(f"inputs: {problem}")
            decode(data, f"inputs[{name!r}]")
        decode(self.expected_output, "expected_output")
        if self.expected_error is not None and not self.expected_error.isidentifier():
            raise ValueError(f"expected_error: {self.expected_error!r} is no exception's name; ValueError is one")
        if self.property is not None:
            _check_property(self.property, self.inputs)
        return self

    @model_serializer(mode="wrap")
    def _dump(self, handler: Any) -> dict[str, Any]:
        """Leave out what does not count, so that an expected `None` and no expectation stay apart."""
        told: dict[str, Any] = handler(self)
        left_out = {key for key in _EXPECTATIONS if key not in self.model_fields_set}
        left_out |= {key for key in _OPTIONAL if getattr(self, key) == type(self).model_fields[key].default}
        return {key: value for key, value in told.items() if key not in left_out}

    @builtins.property
    def expects(self) -> Literal["output", "error", "property"]:
        """Which of the three it has."""
        if self.expected_error is not None:
            return "error"
        return "output" if self.property is None else "property"

    @builtins.property
    def sees_after(self) -> bool:
        """Whether the property says something about the arguments after the call."""
        text = self.property or ""
        return "after" in text and "after" not in self.inputs and "after" in _names_in(text)

    def problems(self, spec: FunctionSpec) -> list[str]:
        """What does not fit the function that it is for: arguments that it does not have, or that are not given."""
        names = [each.name for each in spec.inputs]
        unknown = [name for name in self.inputs if name not in names]
        missing = [name for name in names if name not in self.inputs and not _is_optional(spec, name)]
        takes = ", ".join(map(repr, names)) or "none"
        found = [f"the function has no argument {name!r}; it has {takes}" for name in unknown]
        return found + [f"the argument {name!r} is not given" for name in missing]


def _is_optional(spec: FunctionSpec, name: str) -> bool:
    """Whether the spec's words for a type say that the argument may be left out."""
    told = next(each.type for each in spec.inputs if each.name == name).lower()
    return "=" in told or "optional" in told or "default" in told


def _check_property(text: str, inputs: Mapping[str, Any]) -> None:
    try:
        tree = parsed_expression(text)
        names = _names_in(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "property", "eval")  # Not all that is wrong is found before.
    except UNREADABLE as error:
        raise ValueError(f"property: it is no Python: {error}") from error
    unknown = sorted(names - _OPEN - {"result", "after", *inputs})
    if unknown:
        listed = ", ".join(map(repr, unknown))
        known = "result, the inputs, after, math and the builtins"
        raise ValueError(f"property: {listed} is not known there; it has {known}")
    told_of = {"result"} | ({"after"} & names) - set(inputs)
    if not any(isinstance(node, ast.Name) and node.id in told_of for node in ast.walk(tree)):
        raise ValueError("property: it says nothing about result")


def _names_in(text: str) -> set[str]:
    """The names that an expression does not define itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _free(symtable.symtable(text, "property", "eval"))


def _free(table: symtable.SymbolTable) -> set[str]:
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    if table.get_type() == "module":
        names = {symbol.get_name() for symbol in table.get_symbols() if not symbol.is_assigned()}
    return names.union(*(_free(child) for child in table.get_children()))


_TESTS: TypeAdapter[dict[str, list[FunctionTest]]] = TypeAdapter(dict[str, list[FunctionTest]])


def read_tests(
    data: Any, specs: Sequence[FunctionSpec], *, language: Language | None = None
) -> dict[str, list[FunctionTest]]:
    """Tests from JSON-like data, each checked against the function that it is for.

    Args:
        data: Lists of tests by the names of the functions.
        specs: The functions.
        language: The language that setup code is in; `None`: Python.

    Raises:
        GenerationError: Something is wrong; the message lists every mistake.
    """
    try:
        tests = _TESTS.validate_python(data)
    except ValidationError as error:
        raise GenerationError("\n".join(problems_of(error, "tests"))) from error
    wrong = [*_problems_together(tests, specs), *_problems_of_setups(tests, language)]
    if wrong:
        raise GenerationError("\n".join(wrong))
    return tests


def _problems_together(tests: Mapping[str, Sequence[FunctionTest]], specs: Sequence[FunctionSpec]) -> list[str]:
    """What is wrong with tests in the light of what they are for."""
    by_name = {spec.name: spec for spec in specs}
    wrong = []
    for function, cases in tests.items():
        if function not in by_name:
            wrong.append(f"tests.{function}: there is no such function; there are {', '.join(map(repr, by_name))}.")
            continue
        seen: set[str] = set()
        for index, test in enumerate(cases):
            found = test.problems(by_name[function])
            if test.name in seen:
                found.append(f"another test of this function has the name {test.name!r} too")
            seen.add(test.name)
            wrong += [f"tests.{function}[{index}]: {each}." for each in found]
    wrong += [f"tests: there is none for {name!r}." for name in by_name if not tests.get(name)]
    return wrong


def _problems_of_setups(tests: Mapping[str, Sequence[FunctionTest]], language: Language | None) -> Iterator[str]:
    """What is wrong with setup code; there may be more functions than those with tests here."""
    for function, cases in tests.items():
        for index, test in enumerate(cases):
            setup = test.setup or ""
            check = check_setup if language is None else language.check_setup
            for problem in check(setup, list(tests), known=False):
                yield f"tests.{function}[{index}]: setup: {problem}."


_WIDEST = 0.1
_ABSURD: tuple[Any, ...] = (None, -1, "x", [], {"$object": {"type": "Nothing", "fields": {}}})


async def say_nothing(tests: Sequence[FunctionTest], runner: TestRunner) -> list[FunctionTest]:
    """The tests with a property that holds of the most absurd results together. They are looked at in the sandbox."""
    asked = [test for test in tests if test.property is not None]
    verdicts = await runner.look(
        [
            (str(test.property), absurd, test.inputs, dict.fromkeys(test.inputs, absurd) if test.sees_after else None)
            for test in asked
            for absurd in _ABSURD
        ],
    )
    count = len(_ABSURD)
    return [test for number, test in enumerate(asked) if all(verdicts[number * count : (number + 1) * count])]


def what_it_says(test: FunctionTest) -> str:
    """The same for tests that differ only in what they are called."""
    return canonical({key: item for key, item in test.model_dump(mode="json").items() if key not in ("name", "kind")})


def why_too_wide(test: FunctionTest) -> str:
    """Why a test lets too much pass for the same number; empty if it does not."""
    most = _WIDEST * max([1.0, *_sizes(test.expected_output)])
    if test.rel <= _WIDEST and test.abs <= most:
        return ""
    return f"rel={test.rel:g} and abs={test.abs:g} are too wide; rel may be {_WIDEST:g} here, and abs {most:g}"


def _sizes(data: Any) -> Iterator[float]:
    level = [data]
    while level:
        item = level.pop()
        tag, content = tag_of(item)
        if tag == "int" and content.bit_length() > 1_000:
            yield 2.0**1_000
        elif tag in ("int", "float"):
            yield abs(float(content))
        elif isinstance(item, dict):
            level += item.values()
        elif isinstance(item, list):
            level += item


class TestChange(BaseModel):
    """A change of frozen tests.

    Attributes:
        function: The function that the test is for.
        test: The test's name.
        before: The test as it was; `None`: there was none.
        after: The test as it is; `None`: there is none any more.
        by: Who changed it.
        reason: Why.
        hash_before: The hash of all tests before.
        hash_after: The hash of all tests after.
    """

    __test__: ClassVar[bool] = False
    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str
    test: str
    before: FunctionTest | None
    after: FunctionTest | None
    by: Annotated[str, Field(min_length=1)]
    reason: Annotated[str, Field(min_length=1)]
    hash_before: str
    hash_after: str


class FrozenTests(BaseModel):
    """Tests with a hash over all that they say.

    Attributes:
        tests: The tests by the names of the functions.
        hash: The sha256 of their canonical JSON.
        changes: How they came from those that were frozen first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tests: dict[str, tuple[FunctionTest, ...]]
    hash: str
    changes: tuple[TestChange, ...] = ()

    def verify(self) -> None:
        """See to it that the tests are those that were frozen.

        Raises:
            GenerationError: They are not.
        """
        if _hash_of(self.tests) != self.hash:
            raise GenerationError("The tests are not those that were frozen: their hash is another one.")

    @property
    def count(self) -> int:
        """How many tests there are."""
        return sum(map(len, self.tests.values()))


def freeze(tests: Mapping[str, Sequence[FunctionTest]]) -> FrozenTests:
    """Freeze tests.

    Args:
        tests: The tests by the names of the functions.

    Raises:
        GenerationError: There are none, or two of a function have the same name.
    """
    for function, cases in tests.items():
        names = [test.name for test in cases]
        if len(set(names)) < len(names):
            raise GenerationError(f"Two tests of {function!r} have the same name.")
    # A copy through JSON, so that nobody holds anything of what is inside.
    copies = {
        function: tuple(FunctionTest.model_validate_json(test.model_dump_json()) for test in cases)
        for function, cases in tests.items()
    }
    if not any(copies.values()):
        raise GenerationError("There are no tests, and so nothing could ever fail.")
    return FrozenTests(tests=copies, hash=_hash_of(copies))


def changed(
    frozen: FrozenTests, function: str, test: str, after: FunctionTest | None, *, by: str, reason: str
) -> FrozenTests:
    """Change one test of frozen ones, and record it.

    Args:
        frozen: The tests.
        function: The function that the test is for.
        test: The test's name; one that is not there yet comes last.
        after: What takes its place; `None`: nothing does.
        by: Who wants it so.
        reason: Why.

    Returns:
        Tests with another hash. Those of before stay as they are.

    Raises:
        GenerationError: Nothing would change, or the tests are not those that were frozen.
    """
    frozen.verify()
    cases = frozen.tests.get(function, ())
    before = next((each for each in cases if each.name == test), None)
    if before == after:
        raise GenerationError(f"The test {test!r} of {function!r} would be as it was before.")
    rest: list[FunctionTest | None] = [after if each.name == test else each for each in cases]
    if before is None:
        rest.append(after)
    tests = {**frozen.tests, function: [each for each in rest if each is not None]}
    renewed = freeze({name: each for name, each in tests.items() if each})
    change = TestChange(
        function=function,
        test=test,
        before=before,
        after=after,
        by=by,
        reason=reason,
        hash_before=frozen.hash,
        hash_after=renewed.hash,
    )
    return renewed.model_copy(update={"changes": (*frozen.changes, change)})


def _hash_of(tests: Mapping[str, Sequence[FunctionTest]]) -> str:
    told = {function: [test.model_dump(mode="json") for test in cases] for function, cases in tests.items()}
    return hashlib.sha256(canonical(told).encode()).hexdigest()

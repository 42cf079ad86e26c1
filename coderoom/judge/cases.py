"""Cases: tests of functions as data, which are frozen before any code is written."""

from __future__ import annotations

import builtins
import functools
import hashlib
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)

from coderoom.errors import GenerationError
from coderoom.judge.guest.steps import BUILTINS
from coderoom.judge.source import check_property, judged_by, names_in
from coderoom.judge.values import canonical, decode, parts

T = TypeVar("T")


def name_problem(name: str) -> str | None:
    """Why a string is not a valid name for a function or argument; `None` if it is one."""
    if not name.isidentifier() or not name.isascii():
        return f"{name!r:.80} is not a valid identifier; use letters, digits and _, and do not start with a digit"
    if keyword.iskeyword(name):
        return f"{name!r} is a keyword of Python; take another name"
    if name.startswith("__"):
        return f"{name!r:.80} starts with two underscores; such names are reserved by Python"
    return None


def _check_name(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(problem)
    return name


Name = Annotated[str, Field(max_length=100), AfterValidator(_check_name)]


class Data(BaseModel):
    """Data that cannot be changed and has no unknown fields."""

    __test__: ClassVar[bool] = False  # Not for pytest, whatever the name of a class.
    model_config = ConfigDict(extra="forbid", frozen=True)


def validated(kind: TypeAdapter[T], data: Any, root: str) -> T:
    """The data, checked; `GenerationError` has the mistakes, one line each, with their places below the root."""
    try:
        return kind.validate_python(data)
    except ValidationError as error:
        lines = []
        for found in error.errors(include_url=False):
            place = root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"])
            lines.append(f"{place}: {found['msg'].removeprefix('Value error, ')}.")
        raise GenerationError("\n".join(lines)) from error


_LONGEST = 20_000
_MOST_STEPS = 100
_NAME = r"^[A-Za-z][A-Za-z0-9_]*$"
_PATH = r"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*$"
EXPECTATIONS = ("expected_output", "expected_error", "property")
_ANY_ERROR = ("Exception", "BaseException", "object")
_OPTIONAL = ("setup", "then", "error_message", "rel", "abs", "exact_types")


class Step(Data):
    """One step before or after the call of a test: a call, an assignment or a file.

    Values are tagged data, in which `{"$name": NAME}` stands for an object of an earlier step or for a function of the
    program.

    Attributes:
        call: What is called: a function or class of the program, a method of an object or class of the program such as
            `shop.add`, or one of some built-in functions. After the call, `result` is what it returned.
        args: Its arguments.
        kwargs: Its arguments by name; not in JavaScript.
        name: The name for what it returns.
        assign: The name that `value` gets; or an attribute of an object that a step has made, such as `shop.open`; or a
            variable of the environment, such as `os.environ.HOME`.
        value: The value of the assignment.
        file: The file that is written, a path in the folder of the test; `-`: standard input.
        text: Its text.
        bytes: Its content as base64 instead.
    """

    call: str | None = Field(default=None, pattern=_PATH)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = Field(default_factory=dict)
    name: str | None = Field(default=None, pattern=_NAME)
    assign: str | None = Field(default=None, pattern=_PATH)
    value: Any = None
    file: str | None = Field(default=None, min_length=1, max_length=200)
    text: str | None = Field(default=None, max_length=_LONGEST)
    bytes: str | None = Field(default=None, max_length=_LONGEST)

    @model_validator(mode="after")
    def _check(self) -> Step:
        given = [key for key in ("call", "assign", "file") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of call, assign, file is required; found: {' and '.join(given) or 'none'}")
        kind = given[0]
        for key, belongs in {"args": "call", "kwargs": "call", "name": "call", "value": "assign", "text": "file",
                             "bytes": "file"}.items():  # fmt: skip
            if kind != belongs and key in self.model_fields_set and getattr(self, key):
                raise ValueError(f"{key} belongs to {belongs}, not to {kind}")
        if self.file is not None and (self.file.startswith("/") or ".." in self.file.split("/")):
            raise ValueError(f"file: {self.file!r} is not a path in the folder of the test")
        if self.bytes is not None:
            decode({"$bytes": self.bytes}, "bytes")
        for data in (*self.args, *self.kwargs.values(), self.value):
            decode(data, kind, _any_name)
        return self

    @model_serializer(mode="wrap")
    def _dump(self, handler: Any) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        kept = {key: value for key, value in fields.items() if value not in (None, [], (), {})}
        return kept if self.assign is None else {**kept, "value": self.value}


def _any_name(name: str) -> None:
    if not re.fullmatch(_PATH, name):
        raise ValueError(f"{name!r:.80} is not a name")


class FunctionTest(Data):
    """A call of a function and the expected result: an output, an error or a property.

    Attributes:
        name: What it tests.
        kind: A normal case, an edge case or an error case.
        inputs: The arguments by their names, as tagged data.
        expected_output: The expected return value, as tagged data.
        expected_error: The name of the expected exception or of one of its base classes.
        error_message: Text that the exception's message must contain, ignoring case.
        property: A Python expression that must be `True`. It sees `result`, the inputs before the call by their names,
            and the dict `after` with the arguments after the call, unless an argument is named `after`. Objects have
            their fields as attributes.
        setup: Steps before the call. The inputs may refer to what they made, with `{"$name": NAME}`.
        then: Steps after the call. What the last call of them returns is the result of the test.
        rel: A relative tolerance for numbers; `None`: see `compare`.
        abs: An absolute tolerance for numbers; `None`: see `compare`.
        exact_types: Whether an expected list must be a list; see `compare`.
    """

    name: str = Field(min_length=1, max_length=300)
    kind: Literal["normal", "edge", "error"] = "normal"
    inputs: dict[str, Any] = Field(default_factory=dict)
    expected_output: Any = None
    expected_error: str | None = Field(default=None, max_length=100)
    error_message: str | None = Field(default=None, max_length=_LONGEST)
    property: str | None = Field(default=None, max_length=_LONGEST)
    setup: tuple[Step, ...] = Field(default=(), max_length=_MOST_STEPS)
    then: tuple[Step, ...] = Field(default=(), max_length=_MOST_STEPS)
    rel: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    abs: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    exact_types: bool = False

    @model_validator(mode="before")
    @classmethod
    def _forget_nulls(cls, data: Any) -> Any:
        """Remove `null` values, which models write for unused fields.

        An expected output may be `null` unless the other expectations are `null` too: then the test says nothing.
        """
        if not isinstance(data, Mapping):
            return data
        given = {
            key: value for key, value in data.items() if value is not None or key not in (*_OPTIONAL, *EXPECTATIONS)
        }
        silent = any(key in given for key in EXPECTATIONS) or all(key in data for key in EXPECTATIONS)
        if "expected_output" in data and not silent:
            given["expected_output"] = None
        return given

    @model_validator(mode="after")
    def _check(self) -> FunctionTest:
        given = [key for key in EXPECTATIONS if key in self.model_fields_set]
        if len(given) != 1:
            found = " and ".join(given) if given else "none; for the result None, write expected_output alone"
            raise ValueError(f"exactly one of {', '.join(EXPECTATIONS)} is required; found: {found}")
        if self.expected_error in _ANY_ERROR:
            raise ValueError(f"expected_error: {self.expected_error!r} matches nearly every error; name its class")
        if self.error_message is not None and self.expected_error is None:
            raise ValueError("error_message is allowed only with expected_error")
        for name, data in self.inputs.items():
            if problem := name_problem(name):
                raise ValueError(f"inputs: {problem}")
            decode(data, f"inputs[{name!r}]", _any_name)
        if self.then and not any(step.call for step in self.then):
            raise ValueError("then: one of the steps must be a call, whose value is the result")
        decode(self.expected_output, "expected_output")
        if self.expected_error is not None and not self.expected_error.isidentifier():
            raise ValueError(f"expected_error: {self.expected_error!r} is not an exception name")
        if self.property is not None:
            check_property(self.property, self.inputs)
        return self

    @model_serializer(mode="wrap")
    def _dump(self, handler: Any) -> dict[str, Any]:
        """Omit unused fields, so that an expected `None` differs from no expectation."""
        fields: dict[str, Any] = handler(self)
        left_out = {key for key in EXPECTATIONS if key not in self.model_fields_set}
        left_out |= {key for key in _OPTIONAL if getattr(self, key) == type(self).model_fields[key].default}
        return {key: value for key, value in fields.items() if key not in left_out}

    @builtins.property
    def expects(self) -> Literal["output", "error", "property"]:
        """Which kind of expectation it has."""
        if self.expected_error is not None:
            return "error"
        return "output" if self.property is None else "property"

    @functools.cached_property
    def judges_by(self) -> str:
        """What its property sees of the values; see `coderoom.judge.Job`."""
        return judged_by(self.property or "None")

    @functools.cached_property
    def has_steps(self) -> bool:
        """Whether it has steps, or refers to functions of the program."""
        return bool(self.setup or self.then) or '"$name"' in canonical(self.inputs)

    @builtins.property
    def sees_after(self) -> bool:
        """Whether the property uses the arguments after the call."""
        text = self.property or ""
        return "after" in text and "after" not in self.inputs and "after" in names_in(text)


def problems_of_steps(test: FunctionTest, functions: Sequence[str]) -> list[str]:
    """The names in the steps of a test that are unknown. Classes of the program begin with a capital letter."""
    known = {*functions}
    found: list[str] = []

    def check(place: str, paths: Iterable[str], hint: str) -> None:
        unknown = [each for each in paths if each not in BUILTINS and each.partition(".")[0] not in known]
        found.extend(f"{place}: {each!r} is unknown; {hint}" for each in unknown if not each[0].isupper())

    hint = (
        f"a step may use {', '.join(map(repr, functions))}, classes of the program, names of earlier steps, and "
        "built-in functions like len, list, next and sorted"
    )
    for kind, steps in (("setup", test.setup), ("then", test.then)):
        for number, step in enumerate(steps):
            owner, _, attribute = (step.assign or "").rpartition(".")
            owners = [] if owner.startswith("os.environ") else [owner]
            called = [each for each in (step.call, *owners) if each]
            check(f"{kind}[{number}]", [*_names_used([*step.args, *step.kwargs.values(), step.value]), *called], hint)
            known |= {name for name in (step.name, attribute) if name and not owner}
        if kind == "setup":
            names = _names_used([*test.inputs.values()])
            check("inputs", names, "name a step of the setup or a function of the program")
            known.add("result")
    return found


def _names_used(data: list[Any]) -> Iterator[str]:
    names = (item.get("$name") for item in parts(data) if isinstance(item, dict))
    return (name for name in names if isinstance(name, str))


def content_key(test: FunctionTest) -> str:
    """A key that is equal for tests that differ only in name and kind."""
    return canonical({key: item for key, item in test.model_dump(mode="json").items() if key not in ("name", "kind")})


class TestChange(Data):
    """A change of frozen tests.

    Attributes:
        function: The function that the test is for.
        test: The test's name.
        before: The test before the change; `None`: it was added.
        after: The test after the change; `None`: it was removed.
        by: Who changed it.
        reason: Why.
        hash_before: The hash of all tests before.
        hash_after: The hash of all tests after.
    """

    function: str
    test: str
    before: FunctionTest | None
    after: FunctionTest | None
    by: Annotated[str, Field(min_length=1)]
    reason: Annotated[str, Field(min_length=1)]
    hash_before: str
    hash_after: str


class FrozenTests(Data):
    """Tests with a hash of their whole content.

    Attributes:
        tests: The tests by function name.
        hash: The SHA-256 of their canonical JSON.
        changes: The changes since the tests were first frozen.
    """

    tests: dict[str, tuple[FunctionTest, ...]]
    hash: str
    changes: tuple[TestChange, ...] = ()

    def verify(self) -> None:
        """Check that the tests are those that were frozen.

        Raises:
            GenerationError: They are not.
        """
        if _hash_of(self.tests) != self.hash:
            raise GenerationError("The tests are not those that were frozen: their hash differs.")

    @property
    def count(self) -> int:
        """The number of tests."""
        return sum(map(len, self.tests.values()))


def freeze(tests: Mapping[str, Sequence[FunctionTest]]) -> FrozenTests:
    """Freeze tests.

    Args:
        tests: The tests by function name.

    Raises:
        GenerationError: There are no tests, or two tests of a function have the same name.
    """
    for function, cases in tests.items():
        names = [test.name for test in cases]
        if len(set(names)) < len(names):
            raise GenerationError(f"Two tests of {function!r} have the same name.")
    # A copy through JSON, so that the caller has no reference to any part of it.
    copies = {
        function: tuple(FunctionTest.model_validate_json(test.model_dump_json()) for test in cases)
        for function, cases in tests.items()
    }
    if not any(copies.values()):
        raise GenerationError("There are no tests, so nothing could ever fail.")
    return FrozenTests(tests=copies, hash=_hash_of(copies))


def changed(
    frozen: FrozenTests, function: str, test: str, after: FunctionTest | None, *, by: str, reason: str
) -> FrozenTests:
    """Change one test of frozen ones, and record it.

    Args:
        frozen: The tests.
        function: The function that the test is for.
        test: The test's name; a new test is added at the end.
        after: The new version; `None`: the test is removed.
        by: The author of the change.
        reason: Why.

    Returns:
        The changed tests with a new hash. `frozen` stays unchanged.

    Raises:
        GenerationError: Nothing would change, or `frozen` does not match its hash.
    """
    frozen.verify()
    cases = frozen.tests.get(function, ())
    before = next((each for each in cases if each.name == test), None)
    if before == after:
        raise GenerationError(f"The new version of the test {test!r} of {function!r} is the same as the old one.")
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
    content = {function: [test.model_dump(mode="json") for test in cases] for function, cases in tests.items()}
    return hashlib.sha256(canonical(content).encode()).hexdigest()

"""Frozen tests: a hash over all of them, and a record of each change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from coderoom.errors import GenerationError
from coderoom.generation.testing.values import canonical
from coderoom.generation.tests import FunctionTest

__all__ = ["FrozenTests", "TestChange", "changed", "freeze"]


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

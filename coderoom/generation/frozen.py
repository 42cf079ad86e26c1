"""Tests that are frozen before any code is written, and the recorded changes of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from coderoom.errors import GenerationError
from coderoom.generation.specs import Data
from coderoom.generation.tests import FunctionTest
from coderoom.generation.values import canonical


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

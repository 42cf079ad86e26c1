r"""Judges the answers of models by tests, for the rewards of trainers and evaluators.

    with Rewards() as rewards:
        [verdict] = rewards.verdicts(["```python\ndef twice(n): return 2 * n\n```"], ["assert twice(2) == 4"])

What the tests expect never enters the process of the answer's code; see `docs/judge.md`.
"""

from __future__ import annotations

import asyncio
import textwrap
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from pydantic import ValidationError

from coderoom._util.text import misfits
from coderoom.blocks import without_thoughts
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.integrations.tool import end_loop, start_loop
from coderoom.judge import Judge, Programs, ProgramTest, TestCode, TestFiles, Verdict, tests_in
from coderoom.judge.answers import code_in
from coderoom.sandbox import Sandbox

__all__ = ["Rewards", "read_row"]

_KNOWN: Final = "'tests'; 'test' and 'entry_point'; 'test_list'; or 'stdin' and 'stdout'"
_MODULE: Final = "solution"


class Rewards:
    """Judges answers, from any thread and event loop.

    It has an event loop in a thread, because trainers call rewards from several loops, or from none. What is not closed
    ends with this object or with the process.

    Args:
        sandbox: The sandbox; `None`: those of the judge. See `Judge`.
        wall: The wall (isolation backend) of the judge's own.
        timeout: The time limit in seconds of the tests of an answer, or of each run of a program.
        sessions: How many answers are judged at a time.
        shared: Whether tests that cannot be separated from the code are run in its process, which can change the
            verdict. Otherwise the answer has not passed.
    """

    def __init__(
        self,
        *,
        sandbox: Sandbox | None = None,
        wall: str = "auto",
        timeout: float = 10.0,
        sessions: int = 2,
        shared: bool = False,
    ) -> None:
        self._judge = Judge(sandbox, wall=wall, timeout=timeout, sessions=sessions)
        self._shared = shared
        self._loop, thread = start_loop("coderoom-rewards")
        self._end = weakref.finalize(self, _end, self._judge, self._loop, thread)
        self._end.atexit = False  # The sandbox ends with its host anyway.

    async def verdict(self, answer: str, tests: TestCode | TestFiles | Programs | str | Mapping[str, Any]) -> Verdict:
        """Judge an answer. It has passed if all tests have; else the verdict is that of the first that failed.

        Args:
            answer: The answer. Its last code block is the code; if it has none, all of it is.
            tests: The tests, or what `read_row` takes.

        Raises:
            SandboxUnavailable: The sandbox broke, which says nothing about the answer.
            RequestError: The tests cannot be read.
        """
        return await asyncio.wrap_future(self._submit(answer, tests))

    def verdicts(self, answers: Sequence[str], tests: Sequence[Any]) -> list[Verdict]:
        """As `verdict`, for several answers, each with its tests, and for callers without an event loop."""
        futures = [self._submit(*each) for each in zip(answers, tests, strict=True)]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """End the judge's sandboxes; a second time does nothing."""
        self._end()

    def _submit(self, answer: str, tests: Any) -> Any:
        if not self._end.alive:
            raise RequestError("The rewards are closed; make new ones.")
        return asyncio.run_coroutine_threadsafe(self._verdict(answer, tests), self._loop)

    async def _verdict(self, answer: str, given: Any) -> Verdict:
        tests = given if isinstance(given, TestCode | TestFiles | Programs) else read_row(given)
        answer = without_thoughts(answer)
        files = code_in(answer, _MODULE)
        main = next((name for name in files if name.startswith(f"{_MODULE}.")), f"{_MODULE}.py")
        code = files.setdefault(main, [answer, *files.values()][-1])
        if isinstance(tests, TestCode) and tests.entry_point:
            files = {main: _continued(code, tests)}
        try:
            verdicts = await self._judge.run(
                {main: code} if isinstance(tests, Programs) else files, tests, shared=self._shared
            )
        except MissingDependencyError as error:  # The answer has chosen the language.
            return Verdict(passed=False, why=str(error))
        counted = [each for each in verdicts if not each.skipped] or verdicts
        return next((each for each in counted if not each.passed), counted[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_row(given: str | Mapping[str, Any]) -> TestCode | TestFiles | Programs:
    """The tests of a row of a data set.

    Args:
        given: Tests for pytest or unittest that import `solution`, or statements that use the answer's names. Or a row
            with `tests`, which is that, a list of statements, or a list of `{"stdin": ..., "stdout": ...}`; with
            `test`, `entry_point` and perhaps `prompt`, as HumanEval has; with `test_list`, as MBPP has; or with `stdin`
            and `stdout`.

    Raises:
        RequestError: It has no tests.
    """
    if isinstance(given, str):
        given = {"tests": given}
    row = {name: value for name, value in given.items() if value is not None}
    tests = row.get("tests", row.get("test_list"))
    if isinstance(tests, list) and all(isinstance(each, str) for each in tests):
        imports = row.get("test_imports") or row.get("test_setup_code") or ""
        tests = "\n".join([*([imports] if isinstance(imports, str) else imports), *tests])
    if tests is None and "stdout" in row:
        tests = [{"stdin": row.get("stdin", ""), "stdout": row["stdout"]}]
    if isinstance(tests, str) and tests.strip():
        return tests_in(tests, _MODULE)
    if isinstance(tests, list) and tests:
        try:
            return Programs(tests=tuple(ProgramTest.model_validate(each) for each in tests), stop_at_first_failure=True)
        except ValidationError as error:
            raise RequestError(f"The tests are wrong: {misfits(error)}") from None
    if isinstance(row.get("test"), str) and isinstance(row.get("entry_point"), str):
        prompt = row.get("prompt")
        before = f"{prompt}\n    pass\n\n" if isinstance(prompt, str) and "def " in prompt else ""
        return TestCode(test=row["test"], entry_point=row["entry_point"], before=before)
    raise RequestError(f"There are no tests in a row with {', '.join(map(repr, row)) or 'nothing'}: it needs {_KNOWN}.")


def _continued(code: str, test: TestCode) -> str:
    """The code with what comes before it: an answer may be the body of a function, or need what the prompt defines."""
    if not test.before or f"def {test.entry_point}" in code:
        return test.before + code
    prompt = test.before.removesuffix("\n    pass\n\n")
    return prompt + "\n" + textwrap.indent(textwrap.dedent(code), "    ")


def _end(judge: Judge, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    end_loop(judge.close(), loop, thread)

"""Whatever a model client raises, the generator ends with a solution that says so."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Sequence
from typing import Any

import pytest
from autogen_core.models import CreateResult, LLMMessage
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from coderoom.configs import ReplayModel
from coderoom.errors import CodeRoomError
from coderoom.generation import AICodeGenerator, Message, Model, Reply, Solution, StopReason
from coderoom.sandbox import Sandbox

from .scripted import ScriptedModel, function, test

TESTS = {"double": [test("two", 4, x=2), test("zero", 0, x=0), test("minus", -6, x=-3)]}
CODE = {"double": "def double(x):\n    return 2 * x"}
CALLS = 3


class OwnBase(BaseException):
    pass


class WithoutText(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("there is no text")


class WithoutTextBase(BaseException):
    def __str__(self) -> str:
        raise ValueError("there is no text")

    __repr__ = __str__


def made(kind: type[BaseException]) -> BaseException | None:
    for arguments in (("x",), ("utf-8", b"\xff", 0, 1, "x"), ("x", [ValueError("y")])):
        try:
            return kind(*arguments)
        except TypeError:
            continue
    return None


ENDING = (KeyboardInterrupt, SystemExit)
KINDS = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
KINDS = [kind for kind in KINDS if not issubclass(kind, ENDING)]
KINDS += [asyncio.CancelledError, OwnBase, WithoutText, WithoutTextBase, CodeRoomError]
FAILURES = [failure for failure in map(made, KINDS) if failure is not None]
FAILURES.append(BaseExceptionGroup("x", [OwnBase("y"), GeneratorExit()]))


class Failing(ScriptedModel):
    """Raises at one of its calls and at all after it, or as soon as it is called instead of when it is awaited."""

    def __init__(self, failure: BaseException, call: int, *, at_once: bool = False) -> None:
        super().__init__([function("double")], TESTS, CODE)
        self._failure = failure
        self._call = call
        self._made_at_once = at_once
        self.calls = 0

    def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Any:
        self.calls += 1
        if self.calls < self._call:
            return super().complete(messages, form)
        if self._made_at_once:
            raise self._failure
        return self._fail()

    async def _fail(self) -> Reply:
        await asyncio.sleep(0)
        raise self._failure


class FailingClient(ReplayModel):
    """A client of AutoGen that answers as a `Failing` model does."""

    def __init__(self, model: Failing) -> None:
        super().__init__([])
        self._model = model

    async def create(self, messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        plain = [Message("user", str(message.content)) for message in messages if message.type == "UserMessage"]
        reply = await self._model.complete(plain)
        return CreateResult(finish_reason="stop", content=reply.text, usage=self._cur_usage, cached=False)


async def solved(model: Any, sandbox: Sandbox, **options: Any) -> Solution:
    generator = AICodeGenerator(model, sandbox=sandbox, cache=False, retries=0, **options)
    return await generator.generate_solution("Double a number.")


@settings(deadline=None)
@given(st.sampled_from(FAILURES), st.integers(1, CALLS), st.booleans(), st.booleans())
async def test_whatever_a_client_raises_is_a_failed_model(
    sandbox: Sandbox, failure: BaseException, call: int, at_once: bool, autogen: bool
) -> None:
    model = Failing(failure, call, at_once=at_once)
    solution = await solved(FailingClient(model) if autogen else model, sandbox)
    assert solution.stop_reason is StopReason.MODEL_FAILED
    assert "could not be called" in solution.error
    assert len(solution.function_specs) == (call > 1)
    assert not solution.all_tests_passed


@pytest.mark.parametrize("lies", ["class", "name"])
async def test_an_exception_that_lies_about_its_class_is_one(sandbox: Sandbox, lies: str) -> None:
    class Kind(type):
        def __getattribute__(cls, name: str) -> Any:
            raise ZeroDivisionError

    class Lying(ConnectionError):  # noqa: N818
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise ZeroDivisionError

    failure = Lying() if lies == "class" else Kind("Nameless", (Exception,), {})()
    solution = await solved(Failing(failure, 2), sandbox)
    assert (solution.stop_reason, "could not be called" in solution.error) == (StopReason.MODEL_FAILED, True)


@pytest.mark.parametrize("reply", [None, 3, {"text": "x"}])
async def test_what_is_no_reply_is_a_failed_model(sandbox: Sandbox, reply: Any) -> None:
    class Odd:
        name = "odd"

        async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
            found: Reply = reply
            return found

    assert (await solved(Odd(), sandbox)).stop_reason is StopReason.MODEL_FAILED


async def test_a_cancellation_from_outside_is_none_of_them(sandbox: Sandbox) -> None:
    model = ScriptedModel([function("double")], TESTS, CODE, seconds=30)
    task = asyncio.create_task(solved(model, sandbox))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("kind", ENDING)
def test_what_ends_the_program_ends_it(kind: type[BaseException]) -> None:
    generator = AICodeGenerator(Failing(kind(), 1), cache=False)
    with pytest.raises(kind):
        generator.generate_solution_sync("Double a number.")


class Slow(ScriptedModel):
    """Is too slow the first time."""

    def __init__(self, times: int) -> None:
        super().__init__([function("double")], TESTS, CODE)
        self._slow = times

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        if self._slow:
            self._slow -= 1
            await asyncio.sleep(30)
        return await super().complete(messages, form)


@pytest.mark.parametrize(("times", "passed"), [(1, True), (2, False)])
async def test_a_request_that_takes_too_long_is_repeated_as_others_are(
    sandbox: Sandbox, times: int, passed: bool
) -> None:
    generator = AICodeGenerator(Slow(times), sandbox=sandbox, cache=False, retries=1, request_timeout=0.1)
    solution = await generator.generate_solution("Double a number.")
    assert solution.all_tests_passed is passed
    assert passed or "TimeoutError: no reply within 0.1 s" in solution.error


async def test_one_that_keeps_within_the_timeout_is_not(sandbox: Sandbox) -> None:
    model: Model = ScriptedModel([function("double")], TESTS, CODE)
    assert (await solved(model, sandbox, request_timeout=30)).all_tests_passed


def test_a_script_needs_no_event_loop() -> None:
    generator = AICodeGenerator(ScriptedModel([function("double")], TESTS, CODE), cache=False)
    assert generator.generate_solution_sync("Double a number.").all_tests_passed


async def test_in_an_event_loop_the_other_method_is_named() -> None:
    generator = AICodeGenerator(ScriptedModel([function("double")], TESTS, CODE), cache=False)
    with pytest.raises(CodeRoomError, match="await generate_solution"):
        generator.generate_solution_sync("Double a number.")

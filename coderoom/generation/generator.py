"""`AICodeGenerator`, the entry point: arguments, sandbox, cache and events around the pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, get_args

import coderoom
from coderoom._util.text import encodable
from coderoom.errors import RequestError
from coderoom.generation.cache import SolutionCache, cache_key
from coderoom.generation.languages import Language, Level
from coderoom.generation.model_client import BudgetedModel
from coderoom.generation.models import Model, OpenAIModel, RateLimiter, as_model
from coderoom.generation.pipeline import Pipeline, all_passed
from coderoom.generation.prompts import PROMPT_VERSION
from coderoom.generation.repair import Program, Rules
from coderoom.generation.runner import TestRunner, language_named, make_sandbox
from coderoom.generation.solution import CUT_SHORT, CacheHit, GenerationEvent, Solution, Usage, Warned
from coderoom.generation.tests import freeze
from coderoom.sandbox import Sandbox

__all__ = [
    "AICodeGenerator",
]

_LONGEST = 100_000
_LEAST = {
    "max_attempts": 1,
    "max_test_changes": 0,
    "max_tokens": 1,
    "max_seconds": 0,
    "concurrency": 1,
    "requests_per_minute": 0.001,
    "retries": 0,
    "test_timeout": 0.01,
}


class AICodeGenerator:
    """Makes tested functions of an instruction: specs, then tests, then code, which is mended until the tests pass.

    Everything that a model wrote runs in a sandbox, and whether a test passed is computed outside of it.

        generator = AICodeGenerator(model_client)
        solution = await generator.generate_solution("Find all primes up to a limit with the sieve of Eratosthenes.")
        solution.all_tests_passed, solution.implementations

    Args:
        model_client: A model client of AutoGen's, or a `coderoom.generation.Model`; it stays open. A text is an API
            key, as `api_key` is.
        model: Instead of a client, the name of a model behind an endpoint that speaks OpenAI's protocol; `None`: the
            variable `CODEROOM_MODEL`, else `gpt-4o`.
        api_key: Its key; `None`: the variable `OPENAI_API_KEY`.
        base_url: Its address; `None`: the variable `OPENAI_BASE_URL`, else OpenAI's own.
        headers: Headers that go with every request to it.
        cache_dir: The folder of the cache; `None`: `coderoom` in the user's own folder for caches.
        cache: Whether solutions that pass are kept and found again, and work that was cut short goes on.
        language: The language, or its name.
        sandbox: Where the code runs; `None`: in one of its own. See `TestRunner` for what it needs.
        wall: The wall of a sandbox of its own.
        max_attempts: How many attempts there may be for each function.
        max_test_changes: How many tests of each function may be changed.
        max_tokens: How many tokens may be spent on a solution; `None`: any number.
        max_seconds: After how many seconds the model is asked nothing more; `None`: never.
        concurrency: How many requests of one solution may be on their way at the same time.
        requests_per_minute: How many requests may begin in a minute, of all solutions that this makes, in whatever
            event loops and threads; `None`: any number. What a client of AutoGen's sends again by itself is not known.
        retries: How often a request is sent again when the line broke, each time after a longer wait.
        test_timeout: The seconds that each test has.
        allowed_imports: The modules that generated code may import; `None`: all that are there.
        block_severity: The least severity of a scanner's finding that keeps code from being run; `None`: none does. A
            weak hash never does; it is told of.
        accept_changed_tests: Whether a function that passes only since its tests were changed counts as passed.

    Raises:
        RequestError: An argument is wrong.
        MissingDependencyError: There is no client, and no key for one.
    """

    def __init__(
        self,
        model_client: Any = None,
        *,
        model: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        cache_dir: str | Path | None = None,
        cache: bool = True,
        language: str | Language = "python",
        sandbox: Sandbox | None = None,
        wall: str = "auto",
        max_attempts: int = 6,
        max_test_changes: int = 2,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        concurrency: int = 4,
        requests_per_minute: float | None = None,
        retries: int = 4,
        test_timeout: float = 5.0,
        allowed_imports: Sequence[str] | None = None,
        block_severity: Level | None = "high",
        accept_changed_tests: bool = False,
    ) -> None:
        if isinstance(model_client, str):
            api_key, model_client = api_key or model_client, None
        if model_client is not None and (model or api_key or base_url or headers):
            raise RequestError("model=, api_key=, base_url= and headers= are for where there is no model client.")
        _check_numbers(
            max_attempts=max_attempts,
            max_test_changes=max_test_changes,
            max_tokens=max_tokens,
            max_seconds=max_seconds,
            concurrency=concurrency,
            requests_per_minute=requests_per_minute,
            retries=retries,
            test_timeout=test_timeout,
        )
        _check_rules(allowed_imports, block_severity)
        self._own_model: OpenAIModel | None = None
        if model_client is None:
            self._own_model = OpenAIModel(model, api_key=api_key, base_url=base_url, headers=headers)
        self._model: Model = self._own_model or as_model(model_client)
        self._language = language_named(language)
        make_sandbox(wall, self._language)  # Refuses a wall that does not exist.
        self._cache = SolutionCache(cache_dir) if cache else None
        self._sandbox = sandbox
        self._wall = wall
        self._rules = Rules(
            max_attempts=max_attempts,
            max_test_changes=max_test_changes,
            allowed_imports=None if allowed_imports is None else tuple(allowed_imports),
            block_severity=block_severity,
            accept_changed_tests=accept_changed_tests,
        )
        self._max_tokens = max_tokens
        self._max_seconds = max_seconds
        self._places = concurrency
        self._pace = RateLimiter(requests_per_minute) if requests_per_minute is not None else None
        self._retries = retries
        self._timeout = test_timeout

    @property
    def cache(self) -> SolutionCache | None:
        """The cache; `None` if there is none."""
        return self._cache

    async def generate_solution(self, instruction: str) -> Solution:
        """Make a solution.

        Args:
            instruction: What the program is to do.

        Returns:
            The solution, as far as it got. Work that the model or a budget cut short goes on from there when the same
            is asked for again.

        Raises:
            RequestError: The instruction is no text, empty or too long.
            SandboxUnavailable: There is no sandbox, or it broke.
            MissingDependencyError: What runs the language, Node for instance, is not installed.
        """
        solution: Solution | None = None
        async with contextlib.aclosing(self.stream(instruction)) as items:
            async for item in items:
                if isinstance(item, Solution):
                    solution = item
        assert solution is not None
        return solution

    async def stream(self, instruction: str) -> AsyncGenerator[GenerationEvent | Solution]:
        """Make a solution, and tell what happens meanwhile; the solution comes last.

        Args:
            instruction: What the program is to do.

        Yields:
            Events, then the solution.

        Raises:
            Exception: As `generate_solution`.
        """
        text = _instruction(instruction)
        queue: asyncio.Queue[GenerationEvent | None] = asyncio.Queue()
        task = asyncio.create_task(self._generate(text, queue.put_nowait))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            yield await task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what it has opened itself in this event loop."""
        if self._own_model is not None:
            await self._own_model.close()

    async def _generate(self, instruction: str, emit: Callable[[GenerationEvent], None]) -> Solution:
        key = self._key(instruction)
        async with contextlib.AsyncExitStack() as stack:
            sandbox = self._sandbox
            if sandbox is None:
                sandbox = await stack.enter_async_context(make_sandbox(self._wall, self._language))
            runner = TestRunner(sandbox, timeout=self._timeout, language=self._language)
            found = await self._find(key, runner, emit)
            if found is not None:
                return found
            self._language.scan("")  # Whoever has no scanner finds out before anything is paid for.
            journal = self._cache.journal(key) if self._cache is not None else None
            asker = BudgetedModel(
                self._model,
                journal,
                emit,
                places=asyncio.Semaphore(self._places),
                pace=self._pace,
                retries=self._retries,
                max_tokens=self._max_tokens,
                max_seconds=self._max_seconds,
            )
            program = Program(instruction, self._language, self._rules, emit)
            solution = await Pipeline(program, asker, runner).run(self._model.name)
        if self._cache is not None and journal is not None:
            if solution.all_tests_passed:
                self._cache.put(key, solution)
            if solution.stop_reason not in CUT_SHORT:
                journal.forget()
        return solution

    async def _find(self, key: str, runner: TestRunner, emit: Callable[[GenerationEvent], None]) -> Solution | None:
        """A solution of the cache that passes its own tests still."""
        found = self._cache.get(key) if self._cache is not None else None
        if found is None or self._cache is None:
            return None
        emit(CacheHit(tuple(found.implementations)))
        began = time.monotonic()
        results = await runner.run(found.implementations, freeze(found.tests))
        if all_passed([spec.name for spec in found.function_specs], found.implementations, results):
            now = {"usage": Usage(), "duration": time.monotonic() - began, "cached": True}
            return found.model_copy(update={"test_results": tuple(results), **now})
        emit(Warned("A solution in the cache does not pass its own tests any more, and was dropped."))
        self._cache.remove(key)
        return None

    def _key(self, instruction: str) -> str:
        rules = self._rules
        return cache_key(
            instruction=instruction,
            model=self._model.name,
            prompt_version=PROMPT_VERSION,
            package_version=coderoom.__version__,
            options={
                "language": self._language.name,
                "allowed_imports": sorted(rules.allowed_imports) if rules.allowed_imports is not None else None,
                "block_severity": rules.block_severity,
                "accept_changed_tests": rules.accept_changed_tests,
                "max_test_changes": rules.max_test_changes,
            },
        )


def _check_rules(allowed_imports: object, block_severity: object) -> None:
    if block_severity not in (None, *get_args(Level)):
        levels = ", ".join(map(repr, get_args(Level)))
        raise RequestError(f"block_severity={block_severity!r} has to be {levels} or None.")
    if allowed_imports is None:
        return
    if isinstance(allowed_imports, str) or not isinstance(allowed_imports, Iterable):
        raise RequestError(f"allowed_imports={allowed_imports!r:.100} has to be a list of names of modules.")
    wrong = [each for each in allowed_imports if not isinstance(each, str)]
    if wrong:
        raise RequestError(f"allowed_imports: {wrong[0]!r:.100} is no name of a module.")


def _check_numbers(**numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int | float) or not value >= _LEAST[name]):
            raise RequestError(f"{name}={value!r} has to be {_LEAST[name]} or more.")


def _instruction(instruction: object) -> str:
    if not isinstance(instruction, str):
        raise RequestError(f"The instruction has to be a text, and is of the type {type(instruction).__name__}.")
    if not instruction.strip():
        raise RequestError("The instruction is empty; say what the program is to do.")
    if len(instruction) > _LONGEST:
        raise RequestError(f"The instruction has {len(instruction):,} characters, and may have {_LONGEST:,}.")
    return encodable(instruction)

"""`AICodeGenerator`, the entry point: arguments, sandbox, cache and events around the pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Self, Unpack

import coderoom
from coderoom._util.database import FILE_NAME, OFF, VARIABLE
from coderoom._util.text import encodable, visible
from coderoom.errors import RequestError
from coderoom.generation.cache import SolutionCache, cache_key
from coderoom.generation.languages import Language
from coderoom.generation.languages.named import language_named, make_sandbox
from coderoom.generation.languages.python import existing_functions
from coderoom.generation.model_client import BudgetedModel, OpenAIModel, as_model
from coderoom.generation.models import Embeddings, Model, OpenAIEmbeddings
from coderoom.generation.options import GeneratorArguments, GeneratorOptions
from coderoom.generation.pipeline import Pipeline, all_passed, warnings_of
from coderoom.generation.program import PROMPT_VERSION, Program
from coderoom.generation.solution import CacheHit, GenerationEvent, Solution, Usage, Warned
from coderoom.judge import Judge, freeze
from coderoom.models.rates import RateLimiter
from coderoom.sandbox import Sandbox

_log = logging.getLogger("coderoom.generation")

_LONGEST = 100_000


class AICodeGenerator:
    """Turns an instruction into tested functions: specs, then tests, then code, which is repaired until the tests pass.

    All code from the model runs in a sandbox. Whether a test passed is computed outside of it.

        generator = AICodeGenerator(model_client)
        solution = await generator.generate_solution("Find all primes up to a limit with the sieve of Eratosthenes.")
        solution.all_tests_passed, solution.implementations

    Args:
        model_client: A model client of AutoGen, or a `coderoom.generation.Model`; it is not closed. A string is an API
            key, like `api_key`.
        model: Instead of a client, the name of a model behind an endpoint with OpenAI's API; `None`: the variable
            `CODEROOM_MODEL`, else `gpt-4o`.
        api_key: Its key; `None`: the variable `OPENAI_API_KEY`.
        base_url: Its address; `None`: the variable `OPENAI_BASE_URL`, else that of OpenAI.
        headers: Headers for every request to it.
        sandbox: The sandbox for the code; `None`: one for all solutions within `async with`, and otherwise a new one
            for each. See `Judge` for its requirements.
        language: The language or its name.
        cache: As the option, or the cache. Without `cache_dir`, `CODEROOM_JOURNAL=off` means that there is none.
        embeddings: As the option, or an object. It finds a cached solution whose instruction is similar, if there is
            none of the same; see `Solution.cached_for`.
        branch_models: Models that repair in branches, in turn, in place of the other one: model clients of AutoGen, of
            different models or with different temperatures, or `Model`s.
        options: Further fields of `GeneratorOptions`, by name.

    Attributes:
        cache: The cache; `None` without one.

    Raises:
        RequestError: An argument is invalid.
        MissingDependencyError: There is neither a client nor a key for one.
    """

    def __init__(
        self,
        model_client: Any = None,
        *,
        model: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        sandbox: Sandbox | None = None,
        language: str | Language = "python",
        cache: bool | SolutionCache = True,
        embeddings: str | Embeddings | None = None,
        branch_models: Sequence[Any] = (),
        **options: Unpack[GeneratorArguments],
    ) -> None:
        if isinstance(model_client, str):
            api_key, model_client = api_key or model_client, None
        if model_client is not None and (model or api_key or base_url or headers):
            raise RequestError("model=, api_key=, base_url= and headers= cannot be combined with a model client.")
        self._options = known = GeneratorOptions.checked(options)
        self.cache = cache if isinstance(cache, SolutionCache) else None
        if cache and self.cache is None and (known.cache_dir is not None or os.environ.get(VARIABLE) != OFF):
            self.cache = SolutionCache(None if known.cache_dir is None else Path(known.cache_dir) / FILE_NAME)
        self._embeddings = OpenAIEmbeddings(embeddings) if isinstance(embeddings, str) else embeddings
        if embeddings is not None and (self.cache is None or not hasattr(self._embeddings, "embed")):
            raise RequestError(
                "embeddings= needs the cache, which is in the journal, and an object with `embed`, as OpenAIEmbeddings."
            )
        most = known.max_answer_tokens
        self._own_model: OpenAIModel | None = None
        if model_client is None:
            self._own_model = OpenAIModel(
                model, api_key=api_key, base_url=base_url, headers=headers, max_answer_tokens=most
            )
        self._model: Model = self._own_model or as_model(model_client, max_answer_tokens=most)
        self._branch_models = [as_model(each, max_answer_tokens=most) for each in branch_models]
        if branch_models and known.branches < 2:
            raise RequestError("branch_models= are asked in branches: set branches to 2 or more.")
        self._language = language_named(language)
        self._sandbox = sandbox
        self._opened: dict[asyncio.AbstractEventLoop, Sandbox] = {}
        per_minute = known.requests_per_minute
        self._limits: dict[str, Any] = {
            "branch_models": self._branch_models,
            "concurrency": known.concurrency,
            "request_timeout": known.request_timeout,
            "retries": known.retries,
            "max_tokens": known.max_tokens,
            "max_seconds": known.max_seconds,
            "rate_limiter": None if per_minute is None else RateLimiter(per_minute),
        }

    async def generate_solution(self, instruction: str) -> Solution:
        """Generate a solution.

        Args:
            instruction: What the program should do.

        Returns:
            The solution, possibly incomplete. Work that a failing model or a budget interrupted continues when the
            same instruction is given again.

        Raises:
            RequestError: The instruction is not a string, empty or too long.
            SandboxUnavailable: There is no sandbox, or it broke.
            MissingDependencyError: The runtime of the language, such as Node, is not installed.
        """
        return await _solution_of(self.stream(instruction))

    def generate_solution_sync(self, instruction: str) -> Solution:
        """Generate a solution in a new event loop, for scripts.

        Args:
            instruction: What the program should do.

        Returns:
            The solution, as `generate_solution`.

        Raises:
            RequestError: An event loop is running, or the same as `generate_solution`.
            SandboxUnavailable: The same as `generate_solution`.
            MissingDependencyError: The same as `generate_solution`.
        """
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise RequestError("An event loop is running: use `await generate_solution(...)` instead.")

        async def generate() -> Solution:
            async with self:
                return await self.generate_solution(instruction)

        return asyncio.run(generate())

    def stream(self, instruction: str) -> AsyncGenerator[GenerationEvent | Solution]:
        """Generate a solution and report progress; the solution comes last.

        Args:
            instruction: What the program should do.

        Returns:
            An iterator of events; the last item is the solution.

        Raises:
            Exception: The same as `generate_solution`.
        """
        return self._stream(lambda: self._program(instruction))

    async def generate_tests(self, source: str, functions: Sequence[str] = (), *, instruction: str = "") -> Solution:
        """Write tests for functions of a module that exists already, and run them. Its code is not changed.

        Args:
            source: The source of the module, in Python.
            functions: The functions; by default all public ones at the top level.
            instruction: A remark for the model.

        Returns:
            A solution with `tests_only`. A test that fails shows a fault of the code or of the test.

        Raises:
            RequestError: The source is not valid Python, or there is no such function.
            SandboxUnavailable: There is no sandbox, or it broke.
        """
        return await _solution_of(self.stream_tests(source, functions, instruction=instruction))

    def stream_tests(
        self, source: str, functions: Sequence[str] = (), *, instruction: str = ""
    ) -> AsyncGenerator[GenerationEvent | Solution]:
        """Write tests as `generate_tests` and report progress; the solution comes last.

        Args:
            source: The source of the module, in Python.
            functions: The functions; by default all public ones at the top level.
            instruction: A remark for the model.

        Returns:
            An iterator of events; the last item is the solution.

        Raises:
            Exception: The same as `generate_tests`.
        """
        return self._stream(lambda: self._program_of_tests(source, functions, instruction))

    def _program(self, instruction: object) -> Program:
        if not isinstance(instruction, str):
            raise RequestError(f"The instruction must be a string, not {type(instruction).__name__}.")
        if not instruction.strip():
            raise RequestError("The instruction is empty; say what the program should do.")
        if len(instruction) > _LONGEST:
            size = f"{len(instruction):,} characters; at most {_LONGEST:,} are allowed"
            raise RequestError(f"The instruction has {size}.")
        return Program(encodable(instruction), self._language, self._options)

    def _program_of_tests(self, source: str, functions: Sequence[str], instruction: str) -> Program:
        if self._language.name != "python":
            raise RequestError(f"Tests for existing code are written for Python only, not for {self._language.name}.")
        about, specs, code = existing_functions(source, functions, instruction)
        program = self._program(about)
        program.take_specs(specs)
        program.existing = code
        program.code.update(code)
        return program

    async def _stream(self, make: Callable[[], Program]) -> AsyncGenerator[GenerationEvent | Solution]:
        program = make()
        queue: asyncio.Queue[GenerationEvent | None] = asyncio.Queue()

        def emit(event: GenerationEvent) -> None:
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("%.500s", visible(str(event)).replace("\n", " "))
            queue.put_nowait(event)

        program.emit = emit
        task = asyncio.create_task(self._generate(program))
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
        if self._sandbox is None:
            self._opened.setdefault(asyncio.get_running_loop(), make_sandbox(self._options.wall, self._language))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections and the sandbox that this object opened in this event loop."""
        sandbox = self._opened.pop(asyncio.get_running_loop(), None)
        if sandbox is not None:
            await sandbox.close()
        if self._own_model is not None:
            await self._own_model.close()

    async def _generate(self, program: Program) -> Solution:
        key = self._key(program.instruction) if self.cache is not None else ""
        async with contextlib.AsyncExitStack() as stack:
            sandbox = self._sandbox or self._opened.get(asyncio.get_running_loop())
            if sandbox is None:
                sandbox = await stack.enter_async_context(make_sandbox(self._options.wall, self._language))
            language = copy(self._language)
            language.about = program.instruction
            runner = Judge(sandbox, timeout=self._options.test_timeout, language=language, strict=self._options.strict)
            if program.existing and (why := await runner.why_not_loaded(program.existing)):
                raise RequestError(
                    f"The module cannot be tested: {why}. In the sandbox it can import installed packages, but not the "
                    "modules beside it."
                )
            found, vector = await self._look_up(program, runner)
            if found is not None:
                return found
            self._language.scan("")  # A missing scanner raises here, before any paid request,
            await runner.why_not_loaded({})  # and so does a missing compiler.
            # Replies that were cut off at one limit are not those at another.
            work = key if self._options.max_answer_tokens is None else f"{key} {self._options.max_answer_tokens}"
            journal = self.cache.journal(work) if self.cache is not None and self.cache.keeps_replies else None
            client = BudgetedModel(self._model, journal, program.emit, **self._limits)
            solution = await Pipeline(program, client, runner).run(encodable(self._model.name))
        passed = sum(result.passed for result in solution.test_results)
        facts = passed, len(solution.test_results), solution.stop_reason, solution.duration
        _log.debug("Done: %d of %d tests passed (%s) after %.2f s.", *facts)
        if self.cache is not None and solution.all_tests_passed:
            self.cache.put(key, solution, scope=self._scope(), vector=vector)
        if journal is not None and not solution.stop_reason.cut_short:
            journal.forget()
        return solution

    async def _look_up(self, program: Program, runner: Judge) -> tuple[Solution | None, Sequence[float]]:
        """A solution from the cache; if there is none, the embedding of the instruction, if it has one."""
        if self.cache is None:
            _log.debug("There is no cache.")
            return None, ()
        found = await self._find(self.cache, self._key(program.instruction), runner, program)
        if found is not None or program.existing or self._embeddings is None:
            return found, ()
        try:
            [given] = await self._embeddings.embed([program.instruction])
            vector = [float(each) for each in given]
        except Exception as error:
            program.warn(f"There is no embedding of the instruction: {type(error).__name__}: {error!s:.300}")
            return None, ()
        key = self.cache.nearest(self._scope(), vector, self._options.similarity)
        found = None if key is None else await self._find(self.cache, key, runner, program)
        if found is None:
            return None, vector
        warning = (
            f"The solution is that of a similar instruction, which may ask for something else: {found.instruction}"
        )
        program.emit(Warned(warning))
        warnings = (*program.warnings, *found.warnings, warning)
        return found.model_copy(update={"cached_for": program.instruction, "warnings": warnings}), vector

    async def _find(self, cache: SolutionCache, key: str, runner: Judge, program: Program) -> Solution | None:
        """A solution from the cache that still passes its own tests."""
        found = cache.get(key)
        if found is None:
            _log.debug("The cache has no solution.")
            return None
        program.emit(CacheHit(tuple(found.implementations)))
        began = time.monotonic()
        results = await runner.run(found.implementations, freeze(found.tests))
        _log.debug("The tests of the cached solution ran in %.2f s.", time.monotonic() - began)
        if all_passed([spec.name for spec in found.function_specs], found.implementations, results):
            now = {"usage": Usage(), "duration": time.monotonic() - began, "cached": True}
            warnings = dict.fromkeys([*found.warnings, *warnings_of(results)])
            return found.model_copy(update={"test_results": tuple(results), "warnings": tuple(warnings), **now})
        program.emit(Warned("A cached solution no longer passes its own tests and was removed."))
        cache.remove(key)
        return None

    def _scope(self) -> str:
        """Where similar instructions are looked for: solutions with the same options and embeddings."""
        return encodable(f"{self._key('')} {getattr(self._embeddings, 'name', '')}")

    def _key(self, instruction: str) -> str:
        matters = {"max_test_changes", "allowed_imports", "block_severity", "accept_changed_tests", "strength"}
        return cache_key(
            instruction=instruction,
            model=" ".join([self._model.name, *(each.name for each in self._branch_models)]),
            prompt_version=PROMPT_VERSION,
            package_version=coderoom.__version__,
            options={"language": self._language.name, **self._options.model_dump(include=matters)},
        )


async def _solution_of(stream: AsyncGenerator[GenerationEvent | Solution]) -> Solution:
    async with contextlib.aclosing(stream) as items:
        async for item in items:
            if isinstance(item, Solution):
                return item
    raise AssertionError("unreachable: the solution comes last")

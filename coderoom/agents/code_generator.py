"""The agent that writes tested functions to an instruction, and what it reports while it does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Unpack

from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    TextMessage,
    ThoughtEvent,
)
from autogen_agentchat.state import BaseState
from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.models import ChatCompletionClient, RequestUsage
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from coderoom._util.components import ArgumentsConfig
from coderoom._util.tasks import await_with_token
from coderoom._util.text import named
from coderoom.agents import metadata as keys
from coderoom.agents.conversation import StreamingAgent
from coderoom.blocks import fence
from coderoom.errors import RequestError
from coderoom.generation import (
    AICodeGenerator,
    BranchesJudged,
    CacheHit,
    CodeRefused,
    CodeWritten,
    FunctionFinished,
    GenerationEvent,
    GeneratorArguments,
    GeneratorOptions,
    Solution,
    SpecsWritten,
    TestChanged,
    TestResult,
    TestsFrozen,
    TestsRun,
    TestsWritten,
    Warned,
    make_sandbox,
    write_solution,
)
from coderoom.models.calling import make_ready
from coderoom.outcome import Outcome

_MOST_REMARKS = 6
_LONGEST_REMARK = 10_000


class CodeGeneratorAgentConfig(GeneratorOptions):
    """The config of a `CodeGeneratorAgent`. Each field is the constructor's argument of the same name."""

    name: str
    model_client: ComponentModel
    description: str | None = None
    work_dir: str | None = None
    cache: bool = Field(default=False, description=GeneratorOptions.model_fields["cache"].description)
    branch_models: list[ComponentModel] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _keep_no_limit(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # AutoGen leaves `None` out of a dump, so that loading would use the default.
        return {**handler(self), "max_seconds": self.max_seconds}


class CodeGeneratorAgentState(BaseState):
    """The saved state of a `CodeGeneratorAgent`."""

    type: str = "CodeGeneratorAgentState"
    instruction: str = ""
    remarks: list[str] = Field(default_factory=list)


class CodeGeneratorAgent(ArgumentsConfig, StreamingAgent, Component[CodeGeneratorAgentConfig]):
    """Writes tested functions to an instruction: specs, tests, code, repair.

    It works like `AICodeGenerator`. The first message is the instruction; later messages of a user or of other agents,
    a reviewer for instance, are remarks for the next turn. Reset the agent before another task. The last message of a
    turn has the number of passed tests and the code; its `metadata` has the outcome of the tests: `ok` only if all of
    them passed.

    Args:
        name: The agent's name, a Python identifier.
        model_client: The model that writes specs, tests and code.
        description: What the agent is for, for other agents.
        work_dir: The folder for module, tests and report; `None`: no files are written.
        branch_models: Models that repair in branches, in turn; without them, `model_client` does.
        options: The fields of `coderoom.generation.GeneratorOptions`, by name. Its limits are those of a turn, and
            `cache` is off by default.

    Raises:
        RequestError: An argument is wrong.
    """

    DEFAULT_DESCRIPTION = "Writes tested functions to an instruction: specs, tests, code, and repair until they pass."

    component_config_schema = CodeGeneratorAgentConfig
    component_provider_override = "coderoom.agents.CodeGeneratorAgent"

    def __init__(
        self,
        name: str,
        model_client: ChatCompletionClient,
        *,
        description: str | None = None,
        work_dir: str | Path | None = None,
        language: str = "python",
        cache: bool = False,
        embeddings: str | None = None,
        branch_models: Sequence[ChatCompletionClient] = (),
        **options: Unpack[GeneratorArguments],
    ) -> None:
        super().__init__(name, self.DEFAULT_DESCRIPTION if description is None else description)
        self._model_client = model_client
        self._branch_models = list(branch_models)
        self._work_dir = None if work_dir is None else Path(work_dir)
        self._options = GeneratorOptions.checked(
            {"language": language, "cache": cache, "embeddings": embeddings, **options}
        )
        self._renew()
        self._state = CodeGeneratorAgentState()

    @property
    def wall(self) -> str:
        """The wall around the code: the configured one, and after the start the chosen one."""
        return self._sandbox.wall

    async def start(self) -> None:
        """Start the sandbox now and not on first use."""
        await self._sandbox.start()

    async def close(self) -> None:
        """Stop the sandbox. It starts again if the agent is used again."""
        await self._sandbox.close()
        self._renew()

    def _renew(self) -> None:
        self._sandbox = make_sandbox(self._options.wall, self._options.language)
        self._generator = AICodeGenerator(
            self._model_client,
            sandbox=self._sandbox,
            branch_models=self._branch_models,
            **self._options.model_dump(),
        )

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Generate a solution from the new messages; the `Response` comes last."""
        await make_ready(self._model_client)
        self._take(messages)
        if not self._state.instruction:
            raise RequestError(f"The agent {self.name!r} was given nothing to do: there is no message from a user.")
        events: list[BaseAgentEvent | BaseChatMessage] = []
        instruction, remarks = self._state.instruction, "\n\n".join(self._state.remarks)
        if remarks:
            instruction += f"\n\nTake these later remarks into account, above all the latest:\n\n{remarks}"
        async with aclosing(self._generator.stream(instruction)) as items:
            while True:
                item = await await_with_token(anext(items), cancellation_token)
                if isinstance(item, Solution):
                    break
                event = event_of(self.name, item)
                if event is not None:
                    events.append(event)
                    yield event
        files: Sequence[Path] = ()
        if self._work_dir is not None and item.implementations:
            files = write_solution(item, self._work_dir).paths
        yield Response(chat_message=final_message(self.name, item, files), inner_messages=events)

    def _take(self, messages: Sequence[BaseChatMessage]) -> None:
        for message in messages:
            text = message.to_model_text().strip()
            if message.source == self.name or not text:
                continue
            if not self._state.instruction:
                self._state.instruction = text
            else:
                self._state.remarks.append(f"{message.source}: {text[:_LONGEST_REMARK]}")
        del self._state.remarks[:-_MOST_REMARKS]

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Clear the instruction and the remarks."""
        self._state = CodeGeneratorAgentState()

    async def save_state(self) -> Mapping[str, Any]:
        """The instruction and the remarks, as JSON-like data."""
        return self._state.model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned."""
        self._state = CodeGeneratorAgentState.model_validate(state)

    def _to_config(self) -> CodeGeneratorAgentConfig:
        return CodeGeneratorAgentConfig(
            name=self.name,
            model_client=self._model_client.dump_component(),
            description=self.description,
            work_dir=None if self._work_dir is None else str(self._work_dir),
            branch_models=[each.dump_component() for each in self._branch_models],
            **self._options.model_dump(),
        )


_MOST_FAILURES = 10
_LONGEST = 1_000


def event_of(source: str, event: GenerationEvent) -> BaseAgentEvent | None:
    """The AutoGen event for an event of the generator; `None` if there is none.

    Code and what came of branches are `CodeGenerationEvent`s, a test run is a `CodeExecutionEvent`, everything else a
    `ThoughtEvent`, since a team refuses types that it does not know.
    """
    of_branch = {keys.BRANCH: name} if (name := getattr(event, "branch", "")) else {}
    if isinstance(event, CodeWritten):
        block = CodeBlock(code=event.code, language=event.language)
        shown = fence(event.code, event.language, "no-run")
        text = f"{event.function}, attempt {event.attempt} ({event.approach}):{_reason(event.reason)}\n\n{shown}"
        return CodeGenerationEvent(
            source=source, retry_attempt=event.attempt - 1, content=text, code_blocks=[block], metadata=of_branch
        )
    if isinstance(event, TestsRun):
        passed = all(result.passed for result in event.results)
        result = CodeResult(exit_code=0 if passed else 1, output=f"{event.function}: {_tests(event.results)}")
        outcome = Outcome.OK if passed else Outcome.ERROR
        facts = {keys.OUTCOME: outcome.value, keys.EXIT_CODE: str(result.exit_code), keys.RAN: "true", **of_branch}
        return CodeExecutionEvent(source=source, retry_attempt=event.attempt - 1, result=result, metadata=facts)
    if isinstance(event, BranchesJudged):
        facts = {keys.EVENT: keys.BRANCHING, keys.BRANCHES: json.dumps(event.facts)}
        return CodeGenerationEvent(source=source, retry_attempt=0, content=str(event), code_blocks=[], metadata=facts)
    words = _words(event)
    return ThoughtEvent(source=source, content=words, metadata=of_branch) if words else None


def final_message(source: str, solution: Solution, files: Sequence[Path]) -> TextMessage:
    """The last message of a turn: passed tests, the code, and metadata for programs."""
    passed = sum(result.passed for result in solution.test_results)
    total = len(solution.test_results)
    parts = [f"All {total} tests passed."]
    if not solution.all_tests_passed:
        parts = [f"Not done ({solution.stop_reason}): {passed} of {total} tests passed."]
    missing = solution.missing
    if missing:
        listed = [f"- {line[:_LONGEST]}" for line in missing[:_MOST_FAILURES]]
        more = [f"- ... and {len(missing) - _MOST_FAILURES} more"] if len(missing) > _MOST_FAILURES else []
        parts.append("\n".join([*listed, *more]))
    parts += [
        f"The test {change.test!r} of {change.function} was changed: {change.reason}"
        for change in solution.test_changes
    ]
    repairs = [
        f"- {report.function}, attempt {each.number} ({each.approach}): {_one_line(each.reason)}"
        for report in solution.functions
        for each in report.attempts
        if each.reason
    ]
    parts += ["Repairs:\n" + "\n".join(repairs[:_MOST_FAILURES])] if repairs else []
    if solution.implementations:
        code = "\n\n\n".join(each.strip("\n") for each in solution.implementations.values())
        parts.append(fence(code, solution.language, "no-run"))
    if solution.tests:
        names = [f"{name}: {', '.join(test.name for test in tests)}" for name, tests in solution.tests.items()]
        parts.append("Tests:\n" + "\n".join(f"- {line[:_LONGEST]}" for line in names))
    if files:
        parts.append("Files: " + ", ".join(named(path.name) for path in files))
    usage = RequestUsage(prompt_tokens=solution.usage.prompt_tokens, completion_tokens=solution.usage.completion_tokens)
    return TextMessage(source=source, content="\n\n".join(parts), models_usage=usage, metadata=_facts(solution))


def _facts(solution: Solution) -> dict[str, str]:
    outcome = Outcome.OK if solution.all_tests_passed else Outcome.ERROR
    found = {
        keys.OUTCOME: outcome.value,
        keys.EXIT_CODE: "0" if solution.all_tests_passed else "1",
        keys.RAN: str(bool(solution.test_results)).lower(),
        keys.ATTEMPTS: str(sum(len(report.attempts) for report in solution.functions)),
        keys.STOP_REASON: solution.stop_reason.value,
        keys.SUMMARY: "",
    }
    if not solution.all_tests_passed:
        failure = "\n".join([*solution.implementations.values(), *solution.missing])
        found[keys.FAILURE] = hashlib.sha256(failure.encode("utf-8", "replace")).hexdigest()
    return found


def _reason(text: str) -> str:
    return f" {_one_line(text)}" if text else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]


def _tests(results: Sequence[TestResult]) -> str:
    passed = sum(result.passed for result in results)
    lines = [f"{passed} of {len(results)} tests passed"]
    failed = [result for result in results if not result.passed]
    lines += [f"{each.test}: {each.why}"[:_LONGEST] for each in failed[:_MOST_FAILURES]]
    return "\n".join(lines)


def _words(event: GenerationEvent) -> str:
    match event:
        case SpecsWritten():
            return "Functions:\n" + "\n".join(f"- {spec.name}: {spec.purpose[:_LONGEST]}" for spec in event.specs)
        case TestsWritten():
            return f"Tests of {event.function}:\n" + "\n".join(f"- {test.name}" for test in event.tests)
        case CodeRefused():
            return f"{str(event)[:_LONGEST]}{_reason(event.reason)}"
        case TestsFrozen():
            return f"{event.tests.count} tests are frozen, sha256 {event.tests.hash}."
        case TestChanged() | CacheHit() | Warned():
            return str(event)
        case FunctionFinished(report=report) if not report.passed:
            return str(event)
    return ""

"""`JudgeAgent`: runs tests on the team's code and says which have failed, without a model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from copy import copy
from typing import Any

from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage
from autogen_core import CancellationToken, Component

from coderoom._util.components import ArgumentsConfig, Seconds, StrictConfig
from coderoom._util.tasks import await_with_token
from coderoom.agents import metadata as keys
from coderoom.agents.conversation import StreamingAgent
from coderoom.agents.reviewer import ReviewIssue, ReviewVerdict
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.judge import Judge, Programs, Verdict
from coderoom.judge.answers import code_in, tests_from, why_left_out
from coderoom.steps import tell_step

_MOST_NAMED = 20
_LONGEST_REASON = 1_000


class TestsConfig(StrictConfig):
    """What tests to run, and how."""

    __test__ = False

    tests: str
    """The path of a file (`.py`) or folder for pytest or unittest or of tests of a program (`.json`, `.jsonl`), or
    tests in Python. With a file, those beside it are there too, such as `conftest.py` and helpers."""
    module: str = "solution"
    """The name under which the tests import the last code block. Blocks with a file name are files beside it."""
    timeout: Seconds | None = None
    """The time limit in seconds: of a file of tests, or of each test of a program."""
    wall: str = "auto"
    """The wall (isolation backend)."""
    shared: bool = False
    """Whether tests that cannot be separated from the code run in its process, which can change the verdict."""


class HeldTests:
    """Tests that the code in a conversation is held to.

    Args:
        config: The tests.

    Attributes:
        files: The newest code, by file.

    Raises:
        RequestError: The tests cannot be read.
    """

    def __init__(self, config: TestsConfig) -> None:
        self._config = config
        self._tests = tests_from(config.tests, config.module)
        self.files: dict[str, str] = {}
        self._left_out: set[str] = set()

    def anew(self) -> HeldTests:
        """The same tests, for other code."""
        made = copy(self)
        made.files, made._left_out = {}, set()
        return made

    def take(self, message: BaseChatMessage) -> bool:
        """Take the code of a message, if it has some; whether the code has changed."""
        return self.take_text(message.to_model_text())

    def take_text(self, text: str) -> bool:
        """Take the code of a text, as `take` does."""
        before, found = self.files, code_in(text, self._config.module, self._left_out)
        begin = f"{self._config.module}."
        has_new = any(name.startswith(begin) for name in found)  # Perhaps in another language.
        self.files = {name: code for name, code in before.items() if not (has_new and name.startswith(begin))} | found
        return self.files != before

    async def run(self) -> ReviewVerdict:
        """Run the tests; not approved if one has not passed, or there is no code.

        Raises:
            SandboxUnavailable: The sandbox broke, which says nothing about the code.
        """
        if not self.files:
            return ReviewVerdict(approved=False, issues=[], summary="There is no code to test.")
        try:
            async with Judge(wall=self._config.wall, timeout=self._config.timeout, sessions=1) as judge:
                verdicts = await self.verdicts(judge)
        except (MissingDependencyError, RequestError) as error:  # Such as one of the language that the code has chosen.
            return ReviewVerdict(approved=False, issues=[], summary=f"The code cannot be tested: {error}")
        failed = [each for each in verdicts if not each.passed and not each.skipped]
        passed = sum(each.passed for each in verdicts)
        summary = f"{passed} of {len(verdicts)} tests passed. {why_left_out(self._left_out if failed else ())}".strip()
        if any(each.can_be_fooled for each in verdicts):
            summary += " The verdict can be fooled: tests ran in the process of the code."
        issues = [ReviewIssue(severity="error", line=None, message=_said(each)) for each in failed[:_MOST_NAMED]]
        if len(failed) > _MOST_NAMED:
            issues.append(ReviewIssue(severity="error", line=None, message=f"and {len(failed) - _MOST_NAMED} more"))
        return ReviewVerdict(approved=not failed and passed > 0, issues=issues, summary=summary)

    async def verdicts(self, judge: Judge) -> list[Verdict]:
        """The verdict of each test on the code.

        Raises:
            MissingDependencyError: The code has chosen a language that is not installed.
            RequestError: The code cannot be tested.
            SandboxUnavailable: The sandbox broke, which says nothing about the code.
        """
        begin = f"{self._config.module}."
        is_program = isinstance(self._tests, Programs)
        files = {name: code for name, code in self.files.items() if not is_program or name.startswith(begin)}
        return await judge.run(files, self._tests, shared=self._config.shared)


def _said(verdict: Verdict) -> str:
    name = verdict.test.rpartition("::")[2]
    return f"{name}: {verdict.result}"[:_LONGEST_REASON] if name else verdict.result[:_LONGEST_REASON]


class JudgeAgentConfig(TestsConfig):
    """The config of a `JudgeAgent`. Each field is the constructor's argument of the same name."""

    name: str
    description: str | None = None


class JudgeAgent(ArgumentsConfig, StreamingAgent, Component[JudgeAgentConfig]):
    """Runs tests on the newest code of the conversation, and tells the others which have failed. It needs no model.

    The tests run where the code cannot reach them; see `coderoom.judge`. The message is that of a `ReviewerAgent`, with
    `coderoom.approved` and `coderoom.verdict` in its `metadata`, so that the condition `ReviewApproved` ends the run
    when all tests pass.

    Args:
        name: The agent's name, a Python identifier.
        tests: The path of a file (`.py`) or folder for pytest or unittest or of tests of a program (`.json`, `.jsonl`),
            or tests in Python. With a file, those beside it are there too, such as `conftest.py` and helpers.
        module: The name under which the tests import the last code block. Blocks with a file name are files beside it.
        timeout: The time limit in seconds, of all tests of a file or of each test of a program.
        wall: The wall (isolation backend).
        shared: Whether tests that cannot be separated from the code run in its process, which can change the verdict.
        description: What the agent is for, for other agents.

    Raises:
        RequestError: The tests cannot be read.
    """

    DEFAULT_DESCRIPTION = "Runs tests on the code, and says which have failed."

    component_config_schema = JudgeAgentConfig
    component_provider_override = "coderoom.agents.JudgeAgent"

    def __init__(
        self,
        name: str,
        tests: str,
        *,
        module: str = "solution",
        timeout: float | None = None,
        wall: str = "auto",
        shared: bool = False,
        description: str | None = None,
    ) -> None:
        super().__init__(name, self.DEFAULT_DESCRIPTION if description is None else description)
        self._tests, self._module, self._timeout, self._wall, self._shared = tests, module, timeout, wall, shared
        self._held = HeldTests(TestsConfig(tests=tests, module=module, timeout=timeout, wall=wall, shared=shared))

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """Run the tests on the newest code."""
        for message in messages:
            self._held.take(message)
        verdict = await await_with_token(self._held.run(), cancellation_token)
        tell_step("verdict", {"approved": verdict.approved})
        metadata = {keys.APPROVED: str(verdict.approved).lower(), keys.VERDICT: verdict.model_dump_json()}
        yield Response(chat_message=TextMessage(content=str(verdict), source=self.name, metadata=metadata))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Forget the code."""
        self._held.files = {}

    async def save_state(self) -> Mapping[str, Any]:
        """The newest code, as JSON-like data."""
        return {"files": self._held.files}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned."""
        self._held.files = dict(state.get("files", {}))

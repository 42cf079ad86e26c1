"""`TestsPass`: the condition that ends a run when tests pass on the team's code."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StopMessage
from autogen_core import Component

from coderoom.agents.judge_agent import HeldTests, TestsConfig
from coderoom.teams.conditions import ConditionFromSources, SourcesConfig


class TestsPassConfig(TestsConfig, SourcesConfig):
    """The config of `TestsPass`."""


class TestsPass(ConditionFromSources, Component[TestsPassConfig]):
    """Ends the run when tests pass, which run where the code cannot reach them. See `coderoom.agents.JudgeAgent`.

    They run when a turn has brought new code. An agent that is to know which have failed is a `JudgeAgent`.

    Args:
        tests: The path of a file (`.py`) or folder for pytest or unittest or of tests of a program (`.json`, `.jsonl`),
            or tests in Python. With a file, those beside it are there too, such as `conftest.py` and helpers.
        module: The name under which the tests import the last code block. Blocks with a file name are files beside it.
        timeout: The time limit in seconds, of all tests of a file or of each test of a program.
        wall: The wall (isolation backend).
        shared: Whether tests that cannot be separated from the code run in its process, which can change the verdict.
        sources: The names of the agents whose code counts; all by default.

    Raises:
        RequestError: The tests cannot be read.
    """

    __test__ = False

    component_config_schema = TestsPassConfig
    component_provider_override = "coderoom.teams.TestsPass"

    def __init__(
        self,
        tests: str,
        module: str = "solution",
        timeout: float | None = None,
        wall: str = "auto",
        shared: bool = False,
        sources: Sequence[str] | None = None,
    ) -> None:
        super().__init__(sources)
        self._tests, self._module, self._timeout, self._wall, self._shared = tests, module, timeout, wall, shared
        self._held = HeldTests(TestsConfig(tests=tests, module=module, timeout=timeout, wall=wall, shared=shared))

    async def __call__(self, messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> StopMessage | None:
        """Run the tests if there is new code.

        Raises:
            TerminatedException: The condition was met before and not reset.
            SandboxUnavailable: The sandbox broke, which says nothing about the code.
        """
        await super().__call__(messages)
        self._held.files = self._state.get("files", {})
        looked_at = [each for each in messages if isinstance(each, BaseChatMessage) and self.is_from_sources(each)]
        changes = [self._held.take(each) for each in looked_at]
        self._state["files"] = self._held.files
        if not any(changes) or not (verdict := await self._held.run()).approved:
            return None
        self._terminated = True
        return StopMessage(content=verdict.summary, source=type(self).__name__)

    def _stop_reason(self, message: BaseAgentEvent | BaseChatMessage) -> str | None:
        return None

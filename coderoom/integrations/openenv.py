"""OpenEnv: an environment whose steps are cells of a session, and whose reward is whether an answer passes tests.

    app = code_app()  # Served by uvicorn.

A client resets it with the tests of the episode, tries code, and submits its answer:

    async with GenericEnvClient("http://127.0.0.1:8000") as client:
        await client.reset(tests=["assert twice(2) == 4"])
        await client.step({"code": "print(2 * 21)"})
        result = await client.step({"code": "def twice(n): return 2 * n", "submit": True})
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import uuid4

from pydantic import Field

from coderoom.errors import RequestError
from coderoom.integrations.rewards import Rewards, read_row
from coderoom.integrations.tool import CodeSession, missing

try:
    from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
except ImportError as error:
    raise missing("OpenEnv", "openenv") from error

__all__ = ["CodeAction", "CodeEnvironment", "CodeObservation", "code_app"]

_CLIENTS: Final = 100


class CodeAction(Action):  # type: ignore[misc, unused-ignore]
    """A step: a cell of Python, or the answer of the episode."""

    code: str = Field(description="Python code")
    submit: bool = Field(
        default=False, description="Whether this is the answer, which tests judge; it ends the episode"
    )


class CodeObservation(Observation):  # type: ignore[misc, unused-ignore]
    """What a step printed and how it ended."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    value: str | None = Field(default=None, description="The value of the last expression")
    outcome: str = Field(default="ok", description="How the code ended, or what the tests say of the answer")


class CodeEnvironment(Environment):  # type: ignore[misc, type-arg, unused-ignore]
    """An environment for each client: each episode has a session of its own.

    `reset` takes the tests of the episode, as `coderoom.integrations.rewards.read_row` reads them; the state does not
    show them. Without tests, a step cannot be the answer. A broken sandbox is an error of the step, never a reward.

    Args:
        sessions: The sandbox's sessions, which environments share.
        rewards: What judges the answers, which environments share.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, sessions: CodeSession, rewards: Rewards) -> None:
        super().__init__()
        self._sessions = sessions
        self._rewards = rewards
        self._begin(None, None)

    def _begin(self, episode: str | None, tests: Any) -> None:
        self._session = uuid4().hex  # Not the episode's name: two clients may give the same one.
        self._tests = tests
        self._state = State(episode_id=episode or self._session, step_count=0)

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **row: Any) -> CodeObservation:
        """Begin an episode, with the tests in `row`, if there are any."""
        await self._sessions.end(self._session)
        self._begin(episode_id, read_row(row) if row else None)
        return CodeObservation()

    async def step_async(self, action: CodeAction, timeout_s: float | None = None, **_: Any) -> CodeObservation:
        """Run a cell, or judge the answer."""
        self._state.step_count += 1
        if not action.submit:
            result = await self._sessions.run(action.code, self._session, timeout_s)
            return CodeObservation(
                stdout=result.stdout,
                stderr=result.stderr,
                exit_code=result.exit_code,
                value=result.value_repr,
                outcome=str(result.outcome),
            )
        if self._tests is None:
            raise RequestError("This episode has no tests, so there is no answer: reset(tests=...).")
        verdict = await self._rewards.verdict(action.code, self._tests)
        found = {"can_be_fooled": verdict.can_be_fooled, "cannot_separate": verdict.cannot_separate}
        return CodeObservation(outcome=verdict.result, reward=float(verdict.passed), done=True, metadata=found)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **row: Any) -> CodeObservation:
        """As `reset_async`."""
        return asyncio.run(self.reset_async(seed, episode_id, **row))

    def step(self, action: CodeAction, timeout_s: float | None = None, **_: Any) -> CodeObservation:
        """As `step_async`."""
        return asyncio.run(self.step_async(action, timeout_s))

    @property
    def state(self) -> State:
        """The episode and its number of steps."""
        return self._state

    def close(self) -> None:
        """End the session."""
        asyncio.run_coroutine_threadsafe(self._sessions.end(self._session), self._sessions.loop)


def code_app(*, clients: int = _CLIENTS, timeout: float = 10.0, shared: bool = False, **options: Any) -> Any:
    """Make a server of `CodeEnvironment`, as an ASGI application.

    Args:
        clients: How many clients there may be at a time.
        timeout: The time limit of the tests in seconds.
        shared: See `Rewards`.
        options: Arguments of `coderoom.sandbox.Sandbox`.
    """
    sessions = CodeSession(most=0, **options)
    rewards = Rewards(wall=options.get("wall", "auto"), timeout=timeout, shared=shared)
    app = create_fastapi_app(
        lambda: CodeEnvironment(sessions, rewards), CodeAction, CodeObservation, max_concurrent_envs=clients
    )
    app.state.coderoom = sessions, rewards  # They end with the application.
    return app

"""Inspect AI: `sandbox="coderoom"` runs the samples of an evaluation in CodeRoom's sandbox, without Docker.

The scorer `judged` decides by tests that the code of an answer cannot reach.

Each sample has a session of one warm sandbox, with a workspace and a `/tmp` of its own in memory. Files are read and
written by code behind the wall, so that no path reaches a file of the host. Inspect finds this module by its entry
point.
"""

from __future__ import annotations

import signal
import tempfile
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, overload
from uuid import uuid4

from pydantic import BaseModel
from ruamel.yaml import YAML

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.integrations.machine import LIMITS, executing, failure_of, finished, reading, writing
from coderoom.integrations.tool import missing
from coderoom.judge import Judge, TestCode
from coderoom.judge.answers import code_in
from coderoom.sandbox import ExecutionResult, Limits, Sandbox, SandboxConfig, Session, choose_wall

try:
    from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
    from inspect_ai.solver import TaskState
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentConfigType,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandboxenv,
    )
except ImportError as error:
    raise missing("Inspect AI", "inspect") from error

__all__ = ["CodeRoomSandbox", "judged"]

DEFAULT: Final = SandboxConfig(terminals=True, limits=Limits(**LIMITS))
"""Without a config; a command without a timeout of its own may take an hour. Not every wall has terminals."""


@sandboxenv(name="coderoom")
class CodeRoomSandbox(SandboxEnvironment):  # type: ignore[misc, unused-ignore]
    """The sandbox of a sample: a session, whose commands run one after the other.

    Its config is a `coderoom.sandbox.SandboxConfig`, or the path of a YAML or JSON file with its fields.
    """

    _default: ClassVar[SandboxConfig] = DEFAULT
    _sandboxes: ClassVar[dict[str, Sandbox]] = {}
    _samples: ClassVar[Counter[Sandbox]] = Counter()

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self._sandbox = sandbox
        self._session: Session = sandbox.session()

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Start the sandbox of all samples with this config."""
        if config is None and (await _available(choose_wall())).name not in ("bubblewrap", "namespaces"):
            cls._default = DEFAULT.model_copy(update={"terminals": False})
        await _available(cls._sandbox_for(config).start())

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Start a session."""
        environment = cls(cls._sandbox_for(config))
        cls._samples[environment._sandbox] += 1  # Other tasks may end meanwhile.
        try:
            await _available(environment._session.start())
        except BaseException:
            cls._samples[environment._sandbox] -= 1
            raise
        return {"default": environment}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """End everything that the sample has started."""
        for environment in environments.values():
            own = environment.as_type(CodeRoomSandbox)
            await own._session.close()
            cls._samples[own._sandbox] -= 1

    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        """End the sandboxes that no sample uses; other tasks may run."""
        for key, sandbox in list(cls._sandboxes.items()):
            if not cls._samples[sandbox]:
                del cls._sandboxes[key], cls._samples[sandbox]
                await sandbox.close()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Read the config from a log of Inspect."""
        return SandboxConfig(**config)

    def default_polling_interval(self) -> float:
        """How often Inspect asks for news of a command of `exec_remote`; a command takes milliseconds here."""
        return 0.2

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command. All of its processes end at the timeout; it is not tried again."""
        if user is not None:
            raise SandboxUserUnsupportedError(f"The sandbox has one user, without rights, and {user!r} was requested.")
        stdin = ""
        if input is not None:
            stdin = f"/tmp/.input-{uuid4().hex}"
            await self.write_file(stdin, input)
        result = await self._run(executing(cmd, stdin=stdin, cwd=cwd, env=env), timeout)
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        if any(len(text) > limit // 4 and len(text.encode()) > limit for text in (result.stdout, result.stderr)):
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.output[:limit])
        if result.truncated:
            raise OutputLimitExceededError(f"{self._sandbox.limits.output_bytes:,} bytes", result.output)
        if result.error is None and result.value == -signal.SIGKILL:
            await self._run("None")  # If what did it also killed the sandbox, this raises.
        if result.error is not None and isinstance(failure := failure_of(result), TimeoutError | PermissionError):
            raise failure
        done = finished(result)
        return ExecResult(done.exit_code == 0, done.exit_code, done.stdout, done.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, and the folders above it."""
        data = contents.encode() if isinstance(contents, str) else contents
        for cell in writing(file, data):
            result = await self._run(cell)
            if result.error is not None:
                raise failure_of(result)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file."""
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        most = self._sandbox.limits.value_bytes // 2
        data = bytearray()
        while True:
            size = min(most, limit + 1 - len(data))
            result = await self._run(reading(file, len(data), size))
            if result.error is not None:
                raise failure_of(result)
            if not isinstance(result.value, bytes):
                raise OSError(f"{file!r} was not read: {result.value_repr}")
            data += result.value
            if len(data) > limit:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            if len(result.value) < size:
                return data.decode() if text else bytes(data)

    @classmethod
    def _sandbox_for(cls, config: SandboxEnvironmentConfigType | None) -> Sandbox:
        found = cls._default if config is None else config
        if isinstance(found, str):
            found = SandboxConfig(**YAML(typ="safe").load(Path(found)))
        if not isinstance(found, SandboxConfig):
            raise RequestError(f"The config of the sandbox is a {type(found).__name__}; use a SandboxConfig.")
        if found.workspace is not None or found.engine != "cpython" or found.policy != "open":
            raise RequestError("Commands of Inspect need engine 'cpython', policy 'open' and no workspace.")
        return cls._sandboxes.setdefault(found.model_dump_json(), Sandbox.from_config(found))

    async def _run(self, code: str, timeout: int | None = None) -> ExecutionResult:
        result: ExecutionResult = await _available(self._session.run(code, timeout=timeout))
        return result


@scorer(metrics=[accuracy(), stderr()])  # type: ignore[misc, untyped-decorator, unused-ignore]
def judged(wall: str = "auto", timeout: float = 60.0, shared: bool = False) -> Scorer:
    """Score code by tests, in a room that the code cannot reach.

    The tests are in the metadata of a sample, as `check`, which is that of a batch's item (`{"tests": ...}`,
    `{"stdin": ..., "stdout": ...}`, `{"code": ...}`), or as HumanEval's fields `prompt`, `test` and `entry_point`. If
    there are none, the target is tests for pytest or unittest, or statements that use the answer's names.

    Args:
        wall: The wall (isolation backend).
        timeout: The time limit of the tests in seconds, unless a check has one.
        shared: Whether tests that cannot be separated from the code run in its process, which can change the verdict;
            unless a check says it.
    """
    from coderoom.runs import make_check, verdict_on  # They need AutoGen; the sandbox does without.

    async def score(state: TaskState, target: Target) -> Score:
        answer, facts = state.output.completion, state.metadata
        async with Judge(wall=wall, timeout=timeout, sessions=1) as judge:
            try:
                if "check" not in facts and "test" in facts:
                    code, name = [*code_in(answer).values(), answer][0], str(facts.get("entry_point", ""))
                    prompt = str(facts.get("prompt", ""))
                    before = f"{prompt}\n    pass\n\n" if prompt else ""  # A whole function may need what it defines.
                    is_body = bool(prompt) and f"def {name}" not in code
                    code = prompt + textwrap.indent(textwrap.dedent(code), "    ") if is_body else before + code
                    test = TestCode(test=str(facts["test"]), entry_point=name, before=before)
                    [verdict] = await judge.run({"solution.py": code}, test, shared=shared)
                else:
                    given = facts.get("check", {"tests": target.text, "timeout": timeout, "shared": shared})
                    with tempfile.TemporaryDirectory() as folder:
                        verdict = await verdict_on(
                            make_check(given),
                            state.input_text,
                            answer,
                            facts,
                            workspace=Path(folder),
                            judge=judge,
                            model=None,
                        )
            except SandboxUnavailable as error:
                raise SandboxUnavailableError(str(error)) from error
        found = {"can_be_fooled": verdict.can_be_fooled, "cannot_separate": verdict.cannot_separate}
        value = CORRECT if verdict.passed else INCORRECT
        return Score(value=value, answer=answer, explanation=verdict.result, metadata=found)

    return score


async def _available(work: Any) -> Any:
    try:
        return await work
    except SandboxUnavailable as error:
        raise SandboxUnavailableError(str(error)) from error

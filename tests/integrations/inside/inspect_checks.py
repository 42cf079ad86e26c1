"""The Inspect door: an evaluation, and what Inspect's self-check does not look at."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, bash_session
from inspect_ai.util import ExecRemoteStreamingOptions, OutputLimitExceededError, SandboxUnavailableError
from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy

from coderoom.errors import RequestError
from coderoom.integrations.inspect_ai import CodeRoomSandbox, judged
from coderoom.sandbox import Limits, SandboxConfig
from tests.integrations.inside.processes import descendants, kill

INTERACTIVE = ExecRemoteStreamingOptions(stdin_open=True, env={"ONE": "1"})
EXAMPLE = Path(__file__).parents[3] / "examples" / "integrations" / "inspect_task.py"


@pytest.fixture
async def sandbox() -> AsyncIterator[Any]:
    async for each in opened(None):
        yield each


async def opened(config: SandboxConfig | None) -> AsyncIterator[Any]:
    await CodeRoomSandbox.task_init("checks", config)
    environments = await CodeRoomSandbox.sample_init("checks", config, {})
    yield environments["default"]
    await CodeRoomSandbox.sample_cleanup("checks", config, environments, False)
    await CodeRoomSandbox.task_cleanup("checks", config, True)
    assert not CodeRoomSandbox._sandboxes


def call(tool: str, **arguments: str) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", tool, arguments)


def answer(text: str) -> ModelOutput:
    return ModelOutput.from_content("mockllm/model", text)


def evaluate(tasks: Any, outputs: list[ModelOutput], folder: Path) -> Any:
    for output in outputs:
        output.usage = ModelUsage()  # Inspect would download a tokenizer to count them.
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = eval(tasks, model=model, max_samples=1, log_dir=str(folder), display="none")
    assert log.status == "success", log.error
    return log


def test_evaluation_runs_without_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = [
        call("bash", command="wc -l < /workspace/poem.txt"),
        answer("3"),
        call("python", code="print(sum(map(int, open('numbers.txt'))))"),
        answer("60"),
    ]
    monkeypatch.chdir(EXAMPLE.parent)  # Inspect takes relative paths only.
    before = descendants()
    log = evaluate(EXAMPLE.name, outputs, tmp_path)
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    said = [message.text.strip() for each in log.samples or [] for message in each.messages if message.role == "tool"]
    assert said == ["3", "60"]
    assert descendants() <= before


def test_a_shell_in_a_terminal_keeps_its_state(tmp_path: Path) -> None:
    lines = ["x=6; tty", "echo $((x * 7))"]
    outputs = [call("bash_session", action="type_submit", input=line) for line in lines]
    shell = Task(dataset=[Sample("?")], solver=[use_tools([bash_session()]), generate()], sandbox="coderoom")
    log = evaluate(shell, [*outputs, answer("42")], tmp_path)
    first, second = [each.text for each in (log.samples or [])[0].messages if each.role == "tool"]
    assert "/dev/pts/" in first
    assert "42" in second


def test_settings_from_a_file(tmp_path: Path) -> None:
    settings = tmp_path / "sandbox.yaml"
    settings.write_text("limits: {wall_seconds: 1}\nenv: {GREETING: hello}\n")

    @task  # type: ignore[untyped-decorator, unused-ignore]
    def slow() -> Task:
        sample = Sample("?", target="hello", sandbox=("coderoom", str(settings)))
        return Task(dataset=[sample], solver=[use_tools(bash()), generate()], scorer=includes())

    commands = [call("bash", command=f"echo $GREETING; sleep {seconds}") for seconds in (30, 0)]
    log = evaluate(slow(), [*commands, answer("hello")], tmp_path)
    first, second = [each for each in (log.samples or [])[0].messages if each.role == "tool"]
    assert first.error is not None
    assert first.error.type == "timeout"
    assert second.text.strip() == "hello"


async def test_samples_do_not_see_each_other(sandbox: Any) -> None:
    others = await CodeRoomSandbox.sample_init("checks", None, {})
    other = others["default"]
    for name in ("mine.txt", "/tmp/mine.txt"):
        await sandbox.write_file(name, "mine")
        with pytest.raises(FileNotFoundError):
            await other.read_file(name)
    assert len(CodeRoomSandbox._sandboxes) == 1
    await CodeRoomSandbox.task_cleanup("another", None, True)  # While samples run, the sandbox stays.
    assert (await other.exec(["echo", "still here"])).stdout == "still here\n"
    await CodeRoomSandbox.sample_cleanup("checks", None, others, True)


async def test_no_path_reaches_the_host(sandbox: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    for name in (str(secret), f"../../{secret}", f"/proc/{os.getpid()}/root{secret}"):
        with pytest.raises((FileNotFoundError, PermissionError)):
            await sandbox.read_file(name)
    await sandbox.exec(["ln", "-s", str(secret), "link.txt"])
    with pytest.raises(FileNotFoundError):
        await sandbox.read_file("link.txt")
    for name in ("/etc/passwd", "/usr/bin/new", "/root/new"):
        with pytest.raises(OSError, match=name):
            await sandbox.write_file(name, "x")
    await sandbox.write_file(str(tmp_path / "new"), "x")  # In the /tmp of the sample.
    assert [path.name for path in tmp_path.iterdir()] == ["secret.txt"]


async def test_command_that_cannot_start(sandbox: Any) -> None:
    missing = await sandbox.exec(["no-such-program"])
    assert (missing.success, missing.returncode) == (False, 127)
    assert "No such file or directory: 'no-such-program'" in missing.stderr
    assert "Traceback" not in missing.stderr
    await sandbox.write_file("text.sh", "not a program")
    await sandbox.exec(["chmod", "+x", "text.sh"])
    assert (await sandbox.exec(["./text.sh"])).returncode == 126


async def test_too_much_output(sandbox: Any) -> None:
    with pytest.raises(OutputLimitExceededError):
        await sandbox.exec(["sh", "-c", "head -c 11000000 /dev/zero | tr '\\0' x"])
    with pytest.raises(OutputLimitExceededError):
        await sandbox.read_file("/dev/zero", text=False)


async def test_output_that_is_not_text(sandbox: Any) -> None:
    result = await sandbox.exec(["printf", "\\303("])
    assert result.stdout == "\ufffd("
    await sandbox.exec(["sh", "-c", "printf '\\303(' > bytes"])
    with pytest.raises(UnicodeDecodeError):
        await sandbox.read_file("bytes")


async def test_background_processes_last_as_long_as_the_sample() -> None:
    before = descendants()
    async for sandbox in opened(None):
        await sandbox.exec(["sh", "-c", "nohup sleep 1000 > /dev/null 2>&1 &"])
        assert (await sandbox.exec(["sh", "-c", "ps aux | grep -c '[s]leep 1000'"])).stdout == "1\n"
    assert descendants() <= before


async def test_parallel_commands_and_a_cancelled_one(sandbox: Any) -> None:
    numbers = await asyncio.gather(*(sandbox.exec(["cat"], input=str(number)) for number in range(8)))
    assert [result.stdout for result in numbers] == [str(number) for number in range(8)]
    command = asyncio.ensure_future(sandbox.exec(["sleep", "1000"]))
    await asyncio.sleep(0.5)
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    assert (await sandbox.exec(["sh", "-c", "ps aux | grep -c '[s]leep 1000'"])).stdout == "0\n"


async def test_command_beside_others(sandbox: Any) -> None:
    """Inspect installs a server for it in /var/tmp."""
    process = await SandboxEnvironmentProxy(sandbox).exec_remote(["sh", "-c", "cat; echo $ONE; exit 3"], INTERACTIVE)
    assert (await sandbox.exec(["echo", "meanwhile"])).stdout == "meanwhile\n"
    await process.write_stdin("hello\n")
    await process.close_stdin()
    events = [event async for event in process]
    assert "".join(event.data for event in events[:-1]) == "hello\n1\n"
    assert events[-1].exit_code == 3


async def test_code_that_kills_everything(sandbox: Any) -> None:
    await sandbox.write_file("kept.txt", "kept")
    result = await sandbox.exec(["sh", "-c", "kill -9 -1"])
    assert not result.success
    assert await sandbox.read_file("kept.txt") == "kept"


async def test_memory_limit() -> None:
    async for sandbox in opened(SandboxConfig(limits=Limits(memory_bytes=128 * 1024 * 1024))):
        result = await sandbox.exec(["python3", "-c", "x = bytearray(10**9)"])
        assert not result.success
        assert "MemoryError" in result.stderr


async def test_lost_sandbox_is_no_result() -> None:
    before = descendants()
    async for sandbox in opened(None):
        command = asyncio.ensure_future(sandbox.exec(["sleep", "1000"]))
        await asyncio.sleep(0.5)
        kill(descendants() - before)
        for work in (command, sandbox.exec(["true"])):
            with pytest.raises(SandboxUnavailableError):
                await work


async def test_wrong_settings() -> None:
    with pytest.raises(RequestError, match="no workspace"):
        await CodeRoomSandbox.task_init("checks", SandboxConfig(workspace="/tmp/x"))


def test_answers_are_scored_by_tests(tmp_path: Path) -> None:
    equal = "class Any:\n    def __eq__(self, other): return True\n"
    twice = {"prompt": "def twice(n):\n", "entry_point": "twice", "test": "def check(f):\n    assert f(2) == 4\n"}
    answers = {
        "```python\ndef twice(n): return 2 * n\n```": ("C", Sample("Double.", target="assert twice(2) == 4")),
        "```python\ndef twice(n): return n\n```": ("I", Sample("Double.", target="assert twice(2) == 4")),
        f"```python\n{equal}def twice(n): return Any()\n```": ("I", Sample("Double.", metadata=twice)),
        "```python\n    return n + n\n```": ("C", Sample("Double.", metadata=twice)),
        "```python\nprint(2 * int(input()))\n```": (
            "C",
            Sample("Double.", metadata={"check": {"stdin": "2", "stdout": "4"}}),
        ),
    }
    dataset = [sample for _, sample in answers.values()]
    log = evaluate(Task(dataset=dataset, scorer=judged()), [answer(text) for text in answers], tmp_path)
    scores = [sample.scores["judged"] for sample in log.samples]
    assert [score.value for score in scores] == [value for value, _ in answers.values()]
    assert "assert twice(2) == 4" in scores[1].explanation
    assert scores[2].metadata["cannot_separate"]

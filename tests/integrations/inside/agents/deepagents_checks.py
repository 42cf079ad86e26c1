"""LangChain's own tests of a sandbox backend, and what they do not ask."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_tests.integration_tests import SandboxIntegrationTests

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.integrations.deepagents import CodeRoomBackend
from tests.integrations.inside.processes import descendants, kill

CHANGED = "deepagents 0.7 changed it, and langchain-tests 1.1.9 does not know it"
OLDER = {
    "test_write_existing_file_fails": "a file is overwritten",
    **dict.fromkeys(
        (
            *("test_glob", "test_glob_basic_pattern", "test_glob_with_directories"),
            *("test_glob_hidden_files_explicitly", "test_glob_with_character_class", "test_glob_with_question_mark"),
        ),
        "paths are absolute",
    ),
}


@pytest.fixture(scope="session")
def backend() -> Iterator[CodeRoomBackend]:
    with CodeRoomBackend() as backend:
        yield backend


@pytest.mark.filterwarnings("ignore:Class-scoped fixtures")
class TestStandard(SandboxIntegrationTests):  # type: ignore[misc, unused-ignore]
    @pytest.fixture(scope="class")
    def sandbox(self, backend: CodeRoomBackend) -> CodeRoomBackend:
        return backend

    @pytest.fixture(autouse=True)
    def mark_what_changed(self, request: pytest.FixtureRequest) -> None:
        if why := OLDER.get(request.node.originalname):
            request.applymarker(pytest.mark.xfail(reason=f"{CHANGED}: {why}"))


def test_how_commands_end(backend: CodeRoomBackend) -> None:
    done = backend.execute("echo out; echo err >&2; exit 3")
    assert (done.output, done.exit_code) == ("out\nerr\n", 3)
    assert backend.execute("kill -9 $$").exit_code == 137
    assert backend.execute("no-such-program").exit_code == 127
    done = backend.execute("echo begun; sleep 1000", timeout=1)
    assert (done.output, done.exit_code) == ("begun\nThe command was stopped at its time limit.\n", 124)


def test_files_that_cannot_be_written(backend: CodeRoomBackend) -> None:
    backend.upload_files([("/workspace/folder/file", b"x")])
    found = backend.upload_files([("file", b""), ("/workspace/folder", b""), ("/workspace/a\0b", b"")])
    assert [each.error for each in found] == ["invalid_path", "is_directory", "invalid_path"]
    [wall, *_] = backend.upload_files([("/etc/passwd", b"")])
    assert wall.error


async def test_command_that_is_cancelled(backend: CodeRoomBackend) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(backend.aexecute("sleep 1234"), 0.3)
    assert "1234" not in (await backend.aexecute("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).output.replace(
        "'1234'", ""
    )


def test_threads_have_sessions_of_their_own(backend: CodeRoomBackend) -> None:
    def work(command: str) -> Any:
        return backend.execute(command).output

    one, two = ({"configurable": {"thread_id": name}} for name in "12")
    step = RunnableLambda(work)
    step.invoke("echo mine > secret", one)
    assert step.invoke("ls", two) == ""
    assert step.invoke("cat secret", one) == "mine\n"
    assert backend.download_files(["/workspace/secret"])[0].error == "file_not_found"


def test_broken_sandbox_and_wrong_options() -> None:
    before = descendants()
    with CodeRoomBackend() as backend:
        backend.execute("true")
        kill(descendants() - before)
        with pytest.raises(SandboxUnavailable):
            backend.execute("true")
    assert descendants() <= before
    with pytest.raises(RequestError, match="policy"):
        CodeRoomBackend(policy="restricted")

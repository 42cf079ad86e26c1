"""What is reported about code that failed: the author's lines, and the limit that caused it."""

from __future__ import annotations

import asyncio
import itertools
import mimetypes
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.errors import SandboxUnavailable
from coderoom.outcome import Outcome
from coderoom.sandbox import CodeError, ExecutionResult, Limits, Sandbox, Session

from .places import Place, on_both_shapes, on_every_kind_of_wall

MIB = 1 << 20
TURN_ON = "There is no network here: network=True (--network) turns it on."


def error_of(result: ExecutionResult) -> CodeError:
    assert result.error is not None, result
    return result.error


async def test_frames_of_libraries_are_left_out(sandbox: Sandbox) -> None:
    result = await sandbox.run("import json\ndef read(text):\n    return json.loads(text)\nread('{')")
    error = error_of(result)
    assert [line for line in error.traceback.splitlines() if "^" not in line] == [
        "Traceback (most recent call last):",
        '  File "<cell 1>", line 4, in <module>',
        "    read('{')",
        '  File "<cell 1>", line 3, in read',
        "    return json.loads(text)",
        f"json.decoder.JSONDecodeError: {error.message}",
    ]
    assert result.stderr == error.traceback
    assert error.line == 4


async def test_of_what_an_error_came_of_too(sandbox: Sandbox) -> None:
    result = await sandbox.run(
        "import json\ntry:\n    json.loads('{')\nexcept ValueError as error:\n    raise KeyError('a') from error"
    )
    text = error_of(result).traceback
    assert text.count('File "') == 2
    assert "json.loads('{')" in text
    assert "direct cause" in text
    assert "decoder.py" not in text


async def test_frames_of_the_event_loop_are_left_out(sandbox: Sandbox) -> None:
    result = await sandbox.run("import asyncio\nawait asyncio.wait_for(asyncio.sleep(5), 0.05)")
    text = error_of(result).traceback
    assert "asyncio/" not in text
    assert 'File "<cell 1>", line 2' in text
    assert "Traceback (most recent call last):\nasyncio" not in text


@on_both_shapes
async def test_modules_in_the_workspace_are_the_authors(sandbox: Sandbox) -> None:
    result = await sandbox.run("open('mine.py', 'w').write('def f():\\n    return 1 / 0\\n')\nimport mine\nmine.f()")
    assert "return 1 / 0" in error_of(result).traceback


async def test_marks_are_below_what_they_mark(sandbox: Sandbox) -> None:
    lines = error_of(await sandbox.run("x = 1; nope(x)")).traceback.splitlines()
    marked = [(above, line) for above, line in itertools.pairwise(lines) if set(line.strip()) == {"^"}]
    for above, line in marked:  # Python 3.11 and later have them.
        assert above[line.index("^") : line.rindex("^") + 1] == "nope"


async def test_very_many_frames_are_not_all_told(sandbox: Sandbox) -> None:
    result = await sandbox.run("import sys\nsys.setrecursionlimit(10_000)\ndef r(n): n and r(n - 1) or 1 / 0\nr(5000)")
    text = error_of(result).traceback
    assert "[4,002 frames left out]\n" in text
    assert "ZeroDivisionError" in text
    assert len(text) < 5000


async def test_an_exception_is_as_it_was_after_it_was_told(session: Session) -> None:
    code = """
import json
try:
    json.loads('{')
except ValueError as error:
    kept = error
    try:
        raise KeyError from error
    except KeyError as other:
        chain = other
raise chain
"""
    assert error_of(await session.run(code)).type == "KeyError"
    code = """
import traceback
[len(traceback.extract_tb(kept.__traceback__)) > 1, chain.__cause__ is kept, chain.__suppress_context__,
 kept.__suppress_context__]
"""
    assert (await session.run(code)).value == [True, True, True, False]


async def test_a_long_chain_and_a_loop_of_exceptions(sandbox: Sandbox) -> None:
    chain = (
        "def f(n):\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        f(n - 1) if n else [][0]\nf(200)"
    )
    text = error_of(await sandbox.run(chain)).traceback
    assert text.endswith("IndexError: list index out of range\n")
    assert text.count("ZeroDivisionError") < 40
    loop = "a, b = KeyError('a'), KeyError('b')\na.__cause__ = b\nb.__cause__ = a\nraise a"
    assert "KeyError: 'a'" in error_of(await sandbox.run(loop)).traceback


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("rang(3)", ". Did you mean: 'range'?\n"),
        ("counter = 1\nprint(countr)", ". Did you mean: 'counter'?\n"),
        ("[].appnd(1)", ". Did you mean: 'append'?\n"),
        ("xyzzy", "'xyzzy' is not defined\n"),
        ("class C:\n    def __dir__(self): raise ValueError\nC().name", "has no attribute 'name'\n"),
    ],
)
async def test_the_name_that_was_probably_meant(sandbox: Sandbox, code: str, hint: str) -> None:
    result = await sandbox.run(code)
    assert result.stderr.endswith(hint)


async def test_an_async_function_without_await_is_an_error_that_says_so(sandbox: Sandbox) -> None:
    code = "async def fetch():\n    return 1\n"
    result = await sandbox.run(f"{code}fetch()")
    assert (result.outcome, error_of(result).type) == (Outcome.ERROR, "RuntimeError")
    assert result.stderr.endswith(
        "RuntimeError: fetch() was called without `await`, so it did not run: write `await fetch(...)`\n"
    )
    assert (await sandbox.run(f"{code}await fetch()")).value == 1


async def test_an_error_whose_text_fails(sandbox: Sandbox) -> None:
    result = await sandbox.run("class E(Exception):\n    def __str__(self): raise SystemExit(3)\nraise E")
    assert (result.outcome, result.exit_code) == (Outcome.ERROR, 1)
    assert error_of(result).type == "E"


@on_both_shapes
async def test_a_memory_error_says_what_there_is(place: Place) -> None:
    async with place.sandbox(limits=Limits(memory_bytes=256 * MIB)) as sandbox:
        result = await sandbox.run("x = bytearray(10 ** 10)")
    text = "The code wanted more memory than the 256 MiB that it may have."
    assert (result.outcome, error_of(result).type, error_of(result).message) == (Outcome.MEMORY, "MemoryError", text)
    assert result.stderr.endswith(f"MemoryError\n[{text}]\n")


@on_both_shapes
async def test_an_error_at_a_limit_names_it(place: Place) -> None:
    async with place.sandbox(limits=Limits(open_files=64, file_bytes=65536)) as sandbox:
        for code, said in (
            ("files = [open('/dev/null') for _ in range(100)]", "The limit open_files=64 was met."),
            ("open('x', 'wb').write(b'x' * 100_000)", "The limit file_bytes=65,536 was met."),
        ):
            result = await sandbox.run(code)
            assert error_of(result).message.endswith(f". {said}")
            assert said not in result.output


NETWORK = [
    "import socket; socket.socket().connect(('192.0.2.1', 80))",
    "import urllib.request; urllib.request.urlopen('http://example.org')",
    "import asyncio; await asyncio.open_connection('127.0.0.1', 80)",
    "import socket\ntry:\n    socket.getaddrinfo('a.org', 80)\nexcept OSError as e:\n    raise ValueError from e",
]


@on_every_kind_of_wall
async def test_without_a_network_it_is_said(place: Place, sandbox: Sandbox) -> None:
    if place.wall == "none":  # There may be a network.
        return
    for code in NETWORK:
        result = await sandbox.run(code)
        assert result.outcome is Outcome.ERROR
        assert error_of(result).message.endswith(TURN_ON)
        assert result.stderr.endswith(f"\n[{TURN_ON}]\n")


@on_both_shapes
async def test_without_unix_sockets_or_shared_memory_it_is_said(place: Place, tmp_path: Path) -> None:
    async with place.sandbox(workspace=tmp_path) as sandbox:
        result = await sandbox.run("import socket\nsocket.socket(socket.AF_UNIX)")
        network = await sandbox.run("import socket\nsocket.create_connection(('127.0.0.1', 9))")
        shared = [await sandbox.run(f"import multiprocessing as m\nm.{made}") for made in ("Lock()", "Value('i')")]
    assert result.outcome is Outcome.OK or "Unix sockets" in error_of(result).message, result
    assert "Unix sockets" not in error_of(network).message
    for each in shared:
        assert place.has_shared_memory or "shared memory" in error_of(each).message, each


@on_both_shapes
async def test_of_other_errors_it_is_not(sandbox: Sandbox) -> None:
    for code in ("open('/proc/1/mem')", "raise PermissionError(1, 'no')", "{}['socket']"):
        assert "network" not in (await sandbox.run(code)).output


@on_both_shapes
async def test_with_a_network_it_is_not(place: Place) -> None:
    async with place.sandbox(network=True) as sandbox:
        result = await sandbox.run("import socket; socket.getaddrinfo('no.such.name.invalid', 80)")
    assert "turns it on" not in error_of(result).message


async def test_a_host_with_as_many_open_files_as_the_limit_can_start_a_sandbox() -> None:
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        for highest in range(62, 68):  # The number of the worker's end of its socket comes next.
            while opened[-1] < highest:
                opened.append(os.open(os.devnull, os.O_RDONLY))
            async with Sandbox("none", limits=Limits(open_files=64)) as sandbox:
                assert (await sandbox.run("1")).value == 1
    finally:
        for fd in opened:
            os.close(fd)


async def test_a_host_without_descriptors_is_told_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[int] = []
    async with Sandbox("none", workspace=tmp_path) as sandbox, sandbox.session() as session:
        await session.run("1")
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            while True:
                try:
                    opened.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    break
            mimetypes.inited = False  # It opens files when it is first used.
            made = session.run("open('f', 'w').write('a')")
            work = (sandbox.run("1"), sandbox.run("1"), made, session.checkpoint(files=True), Sandbox("none").start())
            done = await asyncio.gather(*work, return_exceptions=True)
        finally:
            for fd in opened:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        failed = [each for each in done if isinstance(each, BaseException)]
        assert failed
        assert {type(each) for each in failed} == {SandboxUnavailable}, failed
        assert "Too many open files" in str(failed[-1])
        assert (await sandbox.run("2")).value == 2


@pytest.mark.slow
def test_a_hard_limit_on_open_files_is_named() -> None:
    program = (
        "import asyncio\nfrom coderoom.sandbox import Limits, Sandbox\nasync def main():\n"
        "    try:\n        await Sandbox('none').start()\n    except Exception as error:\n        print(error)\n"
        "    async with Sandbox('none', limits=Limits(open_files=240)) as sandbox:\n"
        "        print((await sandbox.run('6 * 7')).value)\nasyncio.run(main())"
    )
    command = ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "`ulimit -Hn`) is 256" in done.stdout, done.stderr
    assert "open_files of the sandbox to at most 240" in done.stdout
    assert done.stdout.endswith("42\n")
    command[2] = command[2].replace("256", "40")  # No sandbox fits.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("is 40, and the sandbox needs 272: raise it\n")


@on_both_shapes
async def test_a_program_without_a_network_is_told_what_turns_it_on(place: Place) -> None:
    code = "require('dns').lookup('x.invalid', error => { throw error })"
    async with place.sandbox() as sandbox:
        for cell, language in ((code, "javascript"), ("echo 'curl: (6) Could not resolve host: x.y'; exit 6", "sh")):
            result = await sandbox.run(cell, language=language)
            assert (f"[{TURN_ON}]" in result.stderr) == (place.wall != "none"), result.stderr
        assert TURN_ON not in (await sandbox.run("echo Could not resolve host", language="sh")).stderr

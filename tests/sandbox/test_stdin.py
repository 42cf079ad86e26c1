"""What a cell reads from standard input, and how it prints then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Sandbox, Session

from .places import on_python

pytestmark = on_python


@pytest.mark.parametrize(
    "code",
    [
        "print(input(), input())",
        "import sys\nprint(*sys.stdin.read().split())",
        "import sys\nprint(*map(int, sys.stdin.buffer))",
        "print(*open(0).read().split())",
        "print(*open('/dev/stdin').read().split())",
        "import os\nprint(*map(int, os.read(0, os.fstat(0).st_size).split()))",
        "import threading\nt = threading.Thread(target=lambda: print(input(), input()))\nt.start()",
        "import os\nif os.fork():\n    os.wait()\nelse:\n    print(input(), input())",
        "import os, sys\nprint(input(), input())\nsys.stdout.flush()\nos._exit(0)",
        "import os\nos.system('echo $(cat)')",
    ],
)
async def test_every_way_to_read(sandbox: Sandbox, code: str) -> None:
    result = await sandbox.run(code, stdin="1\n2\n")
    assert (result.stdout, result.stderr, result.exit_code) == ("1 2\n", "", 0)


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("sh", "cat; cat /dev/stdin"),
        ("bash", "cat <(cat) -; cat /dev/stdin"),
        ("javascript", "for (const f of [0, '/dev/stdin']) process.stdout.write(require('fs').readFileSync(f))"),
    ],
)
async def test_other_languages(sandbox: Sandbox, language: str, code: str) -> None:
    given = bytes(range(256)).replace(b"\xff", b"") * 1000
    result = await sandbox.run(code, language=language, stdin=given)
    assert result.stdout == 2 * given.decode("utf-8", "replace"), result.stderr


async def test_it_is_for_one_cell(session: Session) -> None:
    assert (await session.run("open(0).read()", stdin="x" * 1_000_000)).value == "x" * 1_000_000
    assert (await session.run("import sys\nsys.stdin.read()")).value == ""
    assert (await session.run("input()", stdin=b"\xff\n")).value_repr == r"'\udcff'"
    printed = await session.run("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')")
    assert printed.output == "a\nb\nc\n"


async def test_it_cannot_be_written(sandbox: Sandbox) -> None:
    result = await sandbox.run("import os\nos.write(os.open('/dev/stdin', os.O_RDWR), b'x')", stdin="1")
    assert result.error is not None
    assert result.error.type in ("PermissionError", "OSError")


async def test_output_is_written_in_blocks_and_all_of_it(sandbox: Sandbox) -> None:
    lines = "".join(f"{n}\n" for n in range(50_000))
    result = await sandbox.run("for _ in range(50_000): print(input())", stdin=lines)
    assert (result.outcome, result.stdout) == ("ok", lines)
    late = await sandbox.run("print('x', end='')\n1 / 0", stdin="")
    assert (late.stdout, late.exit_code) == ("x", 1)


async def test_a_stream_is_passed_on_as_it_comes(session: Session) -> None:
    async def numbers(printed: asyncio.Queue[str]) -> AsyncIterator[str | bytes]:
        yield "1\n"
        for _ in range(3):
            yield await printed.get()
        yield b"end"

    code = "while (line := input()) != 'end':\n    print(int(line) * 2, flush=True)"
    for language, asking in (("python", code), ("bash", "while read n; do echo $((n * 2)); done")):
        printed: asyncio.Queue[str] = asyncio.Queue()
        result = await session.run(
            asking,
            language=language,
            stdin=numbers(printed),
            on_output=lambda chunk: printed.put_nowait(chunk.text),  # noqa: B023
        )
        assert result.stdout == "2\n4\n8\n16\n"
    long = ["ä" * 100_000] * 20
    assert (await session.run("len(open(0).read())", stdin=iter(long))).value == 2_000_000
    assert (await session.run("!cat\n1", stdin=[b"2\n", "3"])).stdout == "2\n3"


async def test_a_stream_that_nobody_reads_or_that_fails(session: Session) -> None:
    ended = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 10_000
        finally:
            ended.append(1)

    await session.run("a = 1")
    assert (await session.run("__import__('sys').stdin.read(1) and a", stdin=endless())).value == 1
    result = await session.run("import time\ntime.sleep(60)", stdin=endless(), timeout=0.1)
    assert result.outcome == "timeout"
    assert ended == [1, 1]

    async def failing() -> AsyncIterator[bytes]:
        yield b"1\n"
        raise KeyError("no more")

    with pytest.raises(RequestError, match="the input has failed: KeyError: 'no more'"):
        await session.run("while True: input()", stdin=failing())
    with pytest.raises(RequestError, match=r"stdin= has 5, a int, and text or bytes were expected\."):
        await session.run("input()", stdin=[5])  # type: ignore[list-item]
    assert (await session.run("a")).value == 1


async def test_what_is_not_an_input(sandbox: Sandbox) -> None:
    with pytest.raises(RequestError, match=r"stdin=5 is a int, and text or bytes were expected\."):
        await sandbox.run("1", stdin=5)  # type: ignore[arg-type]

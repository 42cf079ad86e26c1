"""What code may expect because Python or Jupyter does it: ends of scripts, open files, awaiting, input, notebooks."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coderoom.executors import LocalCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox, Session

from .places import STRONGEST

# Each leaves its text in the file `o` at the end, and nowhere closes it.
_LEFT_OPEN = [
    "f = open('o', 'w'); f.write('hello')",
    "import csv\nf = open('o', 'w'); csv.writer(f).writerow(['hello'])",
    "import io\nf = io.TextIOWrapper(io.BufferedWriter(io.FileIO('o', 'w'))); f.write('hello')",
    "def g():\n    global f\n    f = open('o', 'w'); f.write('hello'); 1 / 0\ng()",
    "f = open('o', 'w'); f.write('hello'); exit(1)",
]
_AT_THE_END = [
    "import gzip\ng = gzip.open('o', 'wt'); g.write('hello')",
    "import atexit\natexit.register(lambda: open('o', 'w').write('hello'))",
    "import threading as t, time\nt.Thread(target=lambda: (time.sleep(0.1), open('o', 'w').write('hello'))).start()",
    "import multiprocessing as m\ndef p():\n  with open('o', 'w') as f: f.write('hello')\nm.Process(target=p).start()",
    "import json\nclass A:\n  def __del__(self): open('o', 'w').write(json.loads('[\"hello\"]')[0])\na = A(); a.a = a",
    "import zipfile\nz = zipfile.ZipFile('o', 'w'); z.writestr('a', 'hello')",
    "class A: pass\na = A(); a.f = open('o', 'w'); a.w = a.f.write; a.f.a = a; a.w('hello')",
]


@pytest.fixture(scope="module")
async def on_disk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    async with STRONGEST.sandbox(workspace=tmp_path_factory.mktemp("work")) as sandbox:
        yield sandbox


@pytest.fixture
def file(on_disk: Sandbox) -> Path:
    assert on_disk.workspace is not None
    path = on_disk.workspace / "o"
    path.unlink(missing_ok=True)
    return path


def read(path: Path) -> str:
    data = path.read_bytes()
    return gzip.decompress(data).decode() if data[:2] == b"\x1f\x8b" else data.decode(errors="replace").strip()


@pytest.mark.parametrize("code", _LEFT_OPEN)
async def test_files_are_flushed_at_the_end_of_a_cell(on_disk: Sandbox, file: Path, code: str) -> None:
    async with on_disk.session() as session:
        result = await session.run(code)
        assert read(file) == "hello"
        assert [artifact.size for artifact in result.artifacts] == [file.stat().st_size]


@pytest.mark.parametrize("code", _AT_THE_END)
async def test_a_run_ends_as_a_script(on_disk: Sandbox, file: Path, code: str) -> None:
    await on_disk.run(code)
    assert "hello" in read(file)
    file.unlink()
    async with on_disk.session() as session:
        await session.run(code, final=True)
        assert "hello" in read(file)


async def test_a_cell_after_a_last_one_has_a_fresh_state(on_disk: Sandbox) -> None:
    async with on_disk.session() as session:
        for code in ("x = 1", "x = 1; exit(1)", "import os, time\nif os.fork() == 0: time.sleep(9)\nos._exit(0)"):
            await session.run(code, final=True)
            after = await session.run("'x' in globals()")
            assert (after.value, after.state_lost, after.stderr) == (False, False, "")


@pytest.mark.parametrize("code", _AT_THE_END)
async def test_a_session_that_is_closed_or_restarted_ends_what_it_has_begun(
    on_disk: Sandbox, file: Path, code: str
) -> None:
    async with on_disk.session() as session:
        await session.run(code)
        await session.restart()
        assert "hello" in read(file)
        file.unlink()
        await session.run(code)
    assert "hello" in read(file)


async def test_a_rollback_leaves_what_belongs_to_the_checkpoint(on_disk: Sandbox) -> None:
    async with on_disk.session() as session:
        await session.run("import tempfile, os\nfolder = tempfile.TemporaryDirectory()")
        mark = await session.checkpoint()
        await session.run("1")
        await session.rollback(mark)
        assert (await session.run("os.path.isdir(folder.name)")).value is True


async def test_a_checkpoint_writes_no_text_twice(on_disk: Sandbox, file: Path) -> None:
    async with on_disk.session() as session:
        await session.run("f = open('o', 'a'); f.write('one ')")
        mark = await session.checkpoint()
        await session.run("f.write('two ')")
        await session.rollback(mark)
        await session.run("f.write('three')")
    assert file.read_text() == "one two three"


async def test_text_is_written_even_if_a_thread_never_ends(on_disk: Sandbox, file: Path) -> None:
    code = "f = open('o', 'w'); f.write('hello')\nimport threading as t, time\n"
    code += "t.Thread(target=time.sleep, args=(60,)).start()"
    assert (await on_disk.run(code, timeout=0.1)).outcome is Outcome.TIMEOUT
    assert read(file) == "hello"


async def test_a_local_executor_waits_for_threads(tmp_path: Path) -> None:
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock

    code = "import threading as t, time\nt.Thread(target=lambda: (time.sleep(0.02), print('late'))).start()"
    executor = LocalCodeExecutor(work_dir=tmp_path)
    result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
    await executor.stop()
    assert result.output == "late\n"


@pytest.mark.parametrize(
    ("cells", "value"),
    [
        (["import asyncio\nt = asyncio.create_task(asyncio.sleep(0, 1))\nawait asyncio.gather(t)"], [1]),
        (["import asyncio\nt = asyncio.create_task(asyncio.sleep(0.01, 2))", "await t"], 2),
        (
            [
                "import asyncio\nt = asyncio.ensure_future(asyncio.sleep(0, 3))",
                "await t",
            ],
            3,
        ),
        (["import asyncio\nl = []\nasync def f(): l.append(1)\nasyncio.create_task(f());", "l"], [1]),
        (
            ["import asyncio as a, decimal as d\nawait a.sleep(0)\nd.getcontext().prec = 2\nstr(d.Decimal(1) / 3)"],
            "0.33",
        ),
        (
            [
                "import asyncio, contextvars\nv = contextvars.ContextVar('v')\nawait asyncio.sleep(0)\nv.set(4);",
                "v.get()",
            ],
            4,
        ),
        (
            [
                "import asyncio, contextvars\nv = contextvars.ContextVar('v', default=5)\nt = v.set(4);",
                "await asyncio.sleep(0)\nv.reset(t)\nt = v.set(3);",
                "v.reset(t)\nv.get()",
            ],
            5,
        ),
        (["import asyncio\nloop = asyncio.get_running_loop()\nawait loop.create_task(asyncio.sleep(0, 5))"], 5),
        (["import asyncio as a\nf = a.get_running_loop().create_future()\nf.set_result(6)", "await f"], 6),
        (["import asyncio as a\na.run(a.sleep(0))\nt = a.get_event_loop().create_task(a.sleep(0, 7))", "await t"], 7),
        (["from asyncio import *\nl = []\nget_running_loop().call_soon(l.append, 8);", "l"], [8]),
        (
            ["open('h.py', 'w').write('import asyncio as a\\nl = a.get_running_loop()')\nimport h\nh.l.is_running()"],
            False,
        ),
        (
            [
                "import asyncio\ntry:\n  asyncio.get_running_loop()\nexcept RuntimeError:\n  t = 9",
                "t",
            ],
            9,
        ),
        (['  x = """\n  6"""\n  x'], "\n6"),
        (["1 + 6", "_"], 7),
        (["_ = 8", "9", "_"], 8),
        (["10;"], None),
        (["11  # not hidden;"], 11),
        (["import io, sys\nsys.stdin = io.StringIO('12')\ninput()"], "12"),
        (["open('i', 'w').write('13')\nimport os\nos.dup2(os.open('i', 0), 0)\ninput()"], "13"),
        (["exit()", "open(0).read()", "import sys\nsys.stdin.read()"], ""),
        (["class A:\n    x = 14", "import inspect\ninspect.getsource(A)"], "class A:\n    x = 14\n"),
    ],
)
async def test_cells_mean_what_they_mean_in_jupyter(session: Session, cells: list[str], value: object) -> None:
    for cell in cells:
        result = await session.run(cell)
    assert (result.value, result.output) == (value, "")


async def test_a_cell_that_is_interrupted_while_it_awaits_does_not_go_on_later(session: Session) -> None:
    await session.run("import asyncio")
    code = "try:\n    await asyncio.sleep(9)\n    print('later')\nfinally:\n    print('end')"
    assert (await session.run(code, timeout=0.1)).stdout == "end\n"
    assert (await session.run("await asyncio.sleep(0)")).output == ""


@pytest.mark.parametrize(("count", "seconds"), [(200, 0.2), pytest.param(8000, 5, marks=pytest.mark.slow)])
async def test_unfinished_lines_before_code_that_cannot_be_interrupted(
    session: Session, count: int, seconds: float
) -> None:
    result = await session.run(f"for i in range({count}): print(i, end=' ')\nsum(range(10**12))", timeout=seconds)
    assert result.stdout.split() == [str(i) for i in range(count)]


async def test_what_notebooks_use(session: Session) -> None:
    warning = "import warnings\nwarnings.warn('again')"
    assert [(await session.run(warning)).stderr.count("UserWarning: again") for _ in range(2)] == [1, 1]
    assert (await session.run("help(len)")).output.startswith("Help on built-in function len")
    shown = await session.run("from IPython.display import HTML, display\ndisplay(1, HTML('<b>'))\nNone")
    assert shown.stdout.startswith("1\n")
    assert [artifact.name for artifact in shown.artifacts] == ["value-1.html"]
    assert (await session.run("input()")).error is not None


@pytest.mark.parametrize(
    ("cell", "output"),
    [
        ("print(n)\n!echo {n + 1} $n '$HOME'", r"7\n8 7 \$HOME\n"),
        ("def f(z):\n    lines = !printf 'a\\n{z}'\n    return lines\nprint(f(5))", r"\['a', '5'\]\n"),
        ("!exit 3\nprint(_exit_code)", r"3\n"),
        ("%%bash\nfor i in 1 2; do\n  echo $i\ndone", r"1\n2\n"),
        ("%%writefile new.txt\nto {n}\n", r"Writing new.txt\n"),
        ("!cat old.txt\n%env COLOUR=red\n!echo $COLOUR", r"to {n}\nenv: COLOUR=red\nred\n"),
        ("%cd /tmp\nimport os\nprint(os.getcwd())", r"/tmp\n/tmp\n"),
        ("%matplotlib inline\n%load_ext autoreload\n%autoreload 2\nprint(get_ipython())", r"None\n"),
        ("!pip install -q pydantic\nprint('''\n%who\n''', (5\n% 3))", r"Already installed: pydantic .*\n\n%who\n 2\n"),
        ("pip install pydantic && echo then", r"Already installed: pydantic 2.*\nthen\n"),
        ("%%time\nm = 1\nprint(m)", r"1\nCPU times: .*\nWall time: .*\n"),
        ("%time print(2)", r"2\nCPU times: .*\nWall time: .*\n"),
        ("%%capture --no-stderr kept\nprint(n)\n!echo {n}", r""),
        ("%%timeit -r 2 -n 3 m = 1\nm + 1", r".* ± .* per loop \(mean ± std. dev. of 2 runs, 3 loops each\)\n"),
        ("best = %timeit -o -q -n1 -r1 n\nprint(best.loops)", r"1\n"),
        ("def f(a):\n    'Doc.'\nf?\n?nothing", r"Signature: f\(a\)\nDocstring: Doc.\nObject `nothing` not found.\n"),
        ("%run code.py 5\nprint(made)", r"\['code.py', '5'\]\n3\n"),
        ("from IPython.core.interactiveshell import InteractiveShell as S\nS.ast_node_interactivity = 'all'", ""),
        ("%config InteractiveShell.ast_node_interactivity = 'all'", ""),
        ("ls old.txt", r"old.txt\n"),
        (">>> for i in range(2):\n...     print(i)", r"0\n1\n"),
        ("%whos", r"Variable   Type   Data/Info\nn          int    7\n"),
        ("%%python\nprint(6 * 7)", r"42\n"),
    ],
)
async def test_commands_of_notebooks(session: Session, cell: str, output: str) -> None:
    await session.run("n = 7\nopen('old.txt', 'w').write('to {n}\\n')\nNone")
    await session.run("%%writefile code.py\nimport sys\nprint(sys.argv)\nmade = 3")
    result = await session.run(cell)
    assert re.fullmatch(output, result.output), result.output
    if "%%capture" in cell:
        assert (await session.run("kept.stdout")).value == "7\n7\n"


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("print('before')\n%lsmagic", "'%lsmagic' is a command of IPython"),
        ("%%sql\nselect 1", "'%%sql' is a command of IPython"),
        ("%%bash\nexit 3", "exit status 3"),
        ("!pip install 'missing-one>=2'", r"packages=\['missing-one>=2'\] \(--package 'missing-one>=2'\)"),
        ("x = = 1\n!ls", "invalid syntax"),
        ("import missing_one", r"packages=\['missing-one'\] \(--package missing-one\) installs it"),
    ],
)
async def test_commands_of_notebooks_that_fail(session: Session, cell: str, words: str) -> None:
    result = await session.run(cell)
    assert result.error is not None
    assert re.search(words, result.error.traceback), result.error
    assert result.stdout == ""


async def test_programs_that_reserve_more_than_they_use_can_be_started(session: Session) -> None:
    code = (
        "import asyncio, os, resource, subprocess, sys, threading\n"
        "before = resource.getrlimit(resource.RLIMIT_AS)\n"
        "assert before[0] != resource.RLIM_INFINITY\n"
        "def start(): subprocess.run(['node', '-p', '1'], check=True)\n"
        "threads = [threading.Thread(target=start) for _ in range(3)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
        "started = await asyncio.create_subprocess_shell('node -p 2')\n"
        "await started.wait()\n"
        "ended = os.system('node -p 3; exit 4') >> 8\n"
        "assert resource.getrlimit(resource.RLIMIT_AS) == before\n"
        "greedy = 'try: bytearray(3 << 30)\\nexcept MemoryError: print(4)'\n"
        "subprocess.run([sys.executable, '-c', greedy], check=True)\n"
        "ended"
    )
    result = await session.run(code)
    assert (result.output, result.value) == ("1\n1\n1\n2\n3\n4\n", 4)


@pytest.mark.parametrize(
    ("code", "language", "packages"),
    [
        ("import subprocess as s\ns.run(['python3', '-m', 'pip', 'install', '-q', 'a1', \"b2>1\"], check=True)",
         "python", "['a1', 'b2>1'] (--package a1 --package 'b2>1')"),
        ("import subprocess\nsubprocess.check_call('pip install a1 b2', shell=True)",
         "python", "['a1', 'b2'] (--package a1 --package b2)"),
        ("npm install --save @a/b c@^2", "bash", "['npm:@a/b', 'npm:c@^2'] (--package npm:@a/b --package 'npm:c@^2')"),
        ("require('@a/b/c.js')", "javascript", "['npm:@a/b'] (--package npm:@a/b)"),
        ("import x from 'a1'", "javascript", "['npm:a1'] (--package npm:a1)"),
    ],
)  # fmt: skip
async def test_code_that_installs_packages_or_misses_them_is_told_how(
    session: Session, code: str, language: str, packages: str
) -> None:
    result = await session.run(code, language=language)
    assert result.error is not None
    assert f"[Code installs no packages here: packages={packages} does, before it runs.]" in result.stderr or (
        f"[packages={packages} installs it.]" in result.stderr
    )


async def test_what_is_said_of_packages_is_short(session: Session) -> None:
    many = " ".join(f"p{number}" for number in range(9_000))
    result = await session.run(f"'''\npip install {many}\n'''\nraise OSError")
    assert "packages=['p0', 'p1', 'p2'" in result.stderr
    assert len(result.stderr.rpartition("[Code")[2]) < 1_000


async def test_a_shell_that_installs_packages_is_told_how(session: Session) -> None:
    code = "pip() { return 1; }\npip install -q 'one-missing>=2' -r needs.txt || exit 4"
    result = await session.run(code, language="sh")
    assert result.exit_code == 4
    assert "packages=['one-missing>=2', 'needs.txt'] (--package 'one-missing>=2' --package needs.txt)" in result.stderr

"""What the engine `cpython` promises behind every wall, and what a wall keeps out: `WallConformance`.

    class TestFirejail(WallConformance):
        arguments = {"wall": "firejail"}

`docs/plugins.md` has a whole one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import uuid
from pathlib import Path
from typing import ClassVar

import pytest

from coderoom.errors import MissingDependencyError
from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, Sandbox, Session, SourceModule
from coderoom.testing.engines import PythonEngineConformance

_IN_TURN = """\
for number in 1 2 3 4; do echo $number; echo and $number >&2; done
exec 3>&2
echo kept >&3
cat /none 2>&1
echo then
python3 -c 'import os; [os.write(1 + each % 2, b"%d," % each) for each in range(9)]'
exit 3
"""

_FORKSERVER = """
import multiprocessing.context as context
context._default_context._default_context = context._concrete_contexts["forkserver"]
"""

_PROCESSES = """
import concurrent.futures, multiprocessing, threading
from multiprocessing.connection import Client, Listener, wait

def put(found, number):
    found[number] = number * number

with multiprocessing.Manager() as manager:
    found = manager.dict()
    started = [multiprocessing.Process(target=put, args=(found, number)) for number in range(3)]
    for each in started: each.start()
    for each in started: each.join()
    print(sorted(found.items()))
if POOLS:
    with concurrent.futures.ProcessPoolExecutor(2) as pool: print(list(pool.map(abs, [-1, -2])))
with Listener(authkey=b"key") as listener:
    address = listener.address
    def answer():
        with listener.accept() as client:
            client.send(client.recv() * 300_000)
            try: client.recv()
            except EOFError: print("closed")
    thread = threading.Thread(target=answer)
    thread.start()
    with Client(address, authkey=b"key") as server:
        server.send("x")
        print(wait([server], 20) == [server], len(server.recv()))
    thread.join()
try: Client(address)
except FileNotFoundError: print("gone")
"""

_METHODS = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def square(x):
    return x * x

found = []
for name in multiprocessing.get_all_start_methods():
    context = multiprocessing.get_context(name)
    with context.Manager() as manager:
        kept = manager.list()
        process = context.Process(target=lambda: kept.append(square(2)))
        process.start()
        process.join()
        found += kept
    if POOLS:
        with context.Pool(1) as pool, ProcessPoolExecutor(1, mp_context=context) as other:
            found += [*pool.map(square, [3]), *other.map(square, [4])]
multiprocessing.set_start_method("spawn")
(found, multiprocessing.get_start_method())
"""


class WallConformance(PythonEngineConformance):
    """What a wall promises, with the engine `cpython` behind it.

    Attributes:
        isolates: Whether it keeps anything out.
        has_mounts: Whether each session has its own mounts, so that what it writes is bounded by them.
        has_shared_memory: Whether there is a `/dev/shm` to write to, as locks between processes need it.
        has_hosts_programs: Whether code has the interpreter and the programs of this machine.
    """

    isolates: ClassVar[bool] = True
    has_mounts: ClassVar[bool] = True
    has_shared_memory: ClassVar[bool] = True
    has_hosts_programs: ClassVar[bool] = True

    async def test_both_streams_in_the_order_written(self, sandbox: Sandbox) -> None:
        code = """\
        import os, subprocess, sys
        print("1")
        print("2", file=sys.stderr)
        print("3", end="")
        print("4", file=sys.stderr)
        subprocess.run(["sh", "-c", "echo 5; echo 6 >&2"])
        print("7")
        os.write(2, b"8\\n")
        sys.stdout.buffer.write(b"9\\n")
    """
        result = await sandbox.run("\n".join(line.strip() for line in code.splitlines()))
        assert result.output == "1\n2\n34\n5\n6\n7\n8\n9\n"
        assert result.stdout == "1\n35\n7\n9\n"
        assert result.stderr == "2\n4\n6\n8\n"

    async def test_what_programs_write_to_both_streams_is_in_the_order_written(self, session: Session) -> None:
        printed = "".join(f"{number}\nand {number}\n" for number in range(1, 5))
        expected = f"{printed}kept\ncat: /none: No such file or directory\nthen\n0,1,2,3,4,5,6,7,8,"
        for _ in range(10):
            result = await session.run(_IN_TURN, language="sh")
            assert (result.output, result.exit_code) == (expected, 3)
        assert result.stderr == "and 1\nand 2\nand 3\nand 4\nkept\n1,3,5,7,"

    async def test_a_program_that_writes_to_standard_error_all_the_time_is_not_held_up_for_ever(
        self, session: Session
    ) -> None:
        code = "n=0; while [ $n -lt 2000 ]; do echo out; echo err >&2; n=$((n+1)); done; kill -TERM $PPID; echo end"
        result = await session.run(code, language="sh", timeout=50)
        assert result.stdout.endswith("out\nend\n")
        assert (result.stderr.count("err"), result.exit_code) == (2000, 0)

    async def test_a_program_that_a_signal_ended(self, session: Session) -> None:
        result = await session.run("echo before; kill -ABRT $$", language="sh")
        assert (result.outcome, result.stdout, result.exit_code) == (Outcome.ERROR, "before\n", 134)

    async def test_exit_codes(self, sandbox: Sandbox, session: Session) -> None:
        assert (await sandbox.run("import sys; sys.exit(3)")).exit_code == 3
        assert (await sandbox.run("import sys; sys.exit()")).outcome is Outcome.OK
        result = await sandbox.run("raise SystemExit('because')")
        assert (result.exit_code, result.stderr) == (1, "because\n")
        await session.run("x = 1")
        assert (await session.run("exit(2)")).exit_code == 2
        assert (await session.run("x")).value == 1

    async def test_a_process_that_dies_loses_its_state_and_says_so(self, session: Session) -> None:
        await session.run("x = 1")
        result = await session.run("import os\nprint('here', flush=True)\nos._exit(7)")
        assert (result.outcome, result.exit_code, result.state_lost) == (Outcome.ERROR, 7, True)
        assert result.stdout == "here\n"
        assert result.error is not None
        assert "variables are gone" in result.error.message
        result = await session.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
        assert result.exit_code == 137
        assert result.error is not None
        assert "SIGKILL" in result.error.message

    async def test_shell_cells_share_the_workspace(self, session: Session) -> None:
        assert (await session.run("open('a.txt', 'w').write('from python')")).success
        result = await session.run("cat a.txt; echo; echo oops >&2; exit 3", language="bash")
        assert (result.exit_code, result.stdout, result.stderr) == (3, "from python\n", "oops\n")
        assert (await session.run("echo b > b.txt", language="sh")).success
        assert (await session.run("open('b.txt').read()")).value == "b\n"
        result = await session.run("echo before; sleep 60", language="sh", timeout=0.4)
        assert (result.outcome, result.stdout, result.state_lost) == (Outcome.TIMEOUT, "before\n", False)

    async def test_javascript_cells(self, session: Session) -> None:
        if not self.has_hosts_programs:
            return
        if shutil.which("node") is None:
            pytest.skip("node is not installed here")
        result = await session.run("console.log([1, 2].map(x => x * 2).join()); process.exit(4)", language="js")
        assert (result.exit_code, result.stdout) == (4, "2,4\n"), result

    async def test_each_run_has_random_numbers_of_its_own(self) -> None:
        async with self.make(concurrency=1) as sandbox:  # In one room, one after the other.
            found = [(await sandbox.run("import random\nrandom.random()")).value for _ in range(3)]
            assert len(set(found)) == 3, found

    async def test_artifacts(self, workspace: Path) -> None:
        async with self.make() as sandbox:
            result = await sandbox.run("open('a.txt', 'w').write('hello')")
            (artifact,) = result.artifacts
            assert (artifact.name, artifact.size, artifact.media_type) == ("a.txt", 5, "text/plain")
            assert artifact.data == b"hello"
        async with self.make(workspace=workspace) as sandbox:
            result = await sandbox.run("import os\nos.mkdir('d')\nopen('d/b.json', 'w').write('{}')")
            (artifact,) = result.artifacts
            assert artifact.name == "d/b.json"
            assert artifact.path is not None
            assert artifact.path.read_text() == "{}"
            assert (await sandbox.run("1")).artifacts == ()

    async def test_files_can_be_rolled_back(self, workspace: Path) -> None:
        (workspace / "kept").mkdir()
        (workspace / "kept" / "a.txt").write_text("before")
        async with self.make(workspace=workspace) as sandbox, sandbox.session() as session:
            mark = await session.checkpoint(files=True)
            code = "import shutil\nshutil.rmtree('kept')\nopen('new.txt', 'w').write('x')"
            assert (await session.run(code)).success
            await session.rollback(mark)
            assert [str(path.relative_to(workspace)) for path in workspace.rglob("*.txt")] == ["kept/a.txt"]
            assert (await session.run("open('kept/a.txt').read()")).value == "before"
            assert (await session.run("open('kept/a.txt', 'a').write('!')")).success

    async def test_what_is_preloaded_is_there_and_what_cannot_be_is_said(self) -> None:
        async with self.make(preload=["decimal"]) as sandbox:
            assert (await sandbox.run("import sys\n'decimal' in sys.modules")).value is True
        with pytest.raises(MissingDependencyError, match="'no_such_module'"):
            await self.make(preload=["no_such_module"]).start()

    async def test_threads_are_waited_for_and_exit_functions_called(self, sandbox: Sandbox) -> None:
        code = (
            "import atexit, threading, time\natexit.register(print, 'exit')\n"
            "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('main')"
        )
        assert (await sandbox.run(code)).stdout == "main\nthread\nexit\n"

    async def test_a_fork_that_runs_on_is_no_second_cell(self, session: Session) -> None:
        result = await session.run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('x')\npid > 0")
        assert result.value is True
        assert (await session.run("1")).value == 1

    async def test_ordinary_programs_work(self, sandbox: Sandbox) -> None:
        code = """
import concurrent.futures, dataclasses, json, os, multiprocessing, subprocess, sys, tempfile, inspect

@dataclasses.dataclass
class Point:
    x: int

def double(p):
    return p.x * 2

def main():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(list(pool.map(double, [Point(1), Point(2)])))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(list(pool.map(double, [Point(3)])))
    print(subprocess.run([sys.executable, "-c", "print(5)"], capture_output=True, text=True).stdout.strip())
    with tempfile.TemporaryDirectory() as folder:
        print(os.path.isdir(folder))
    print(inspect.getsource(double).strip().splitlines()[0])

if __name__ == "__main__":
    main()
"""
        if not self.has_shared_memory:
            code = code.replace(
                'multiprocessing.get_context("fork").Pool(2)', "concurrent.futures.ThreadPoolExecutor(2)"
            )
        result = await sandbox.run(code)
        assert result.stdout == "[2, 4]\n[6]\n5\nTrue\ndef double(p):\n", result.output

    async def test_processes_find_each_other_with_a_workspace(self, tmp_path: Path) -> None:
        # Without mounts there are never any Unix sockets.
        workspace = {"workspace": tmp_path} if self.has_mounts else {}
        async with self.make(preload=[SourceModule("since_314", _FORKSERVER)], **workspace) as sandbox:
            result = await sandbox.run(f"POOLS = {self.has_shared_memory}\n{_PROCESSES}")
            methods = await sandbox.run(f"POOLS = {self.has_shared_memory}\n{_METHODS}")
        pool = "[1, 2]\n" if self.has_shared_memory else ""
        expected = f"[(0, 0), (1, 1), (2, 4)]\n{pool}True 300000\nclosed\ngone\n"
        assert result.stdout == expected, result.output
        squares = [4, 9, 16] if self.has_shared_memory else [4]
        assert methods.value == (squares * 3, "spawn"), methods.output

    @pytest.mark.parametrize(
        ("limits", "code", "limit"),
        [
            (Limits(open_files=64), "files = [open('/dev/null') for _ in range(100)]", "open_files"),
            (Limits(file_bytes=65536), "open('x', 'wb').write(b'x' * 100_000)", "file_size"),
            (Limits(disk_bytes=1 << 20), "for i in range(9): open(str(i), 'wb').write(b'x' * 200_000)", "disk"),
            (Limits(cpu_seconds=0.5), "while True: pass", "cpu"),
        ],
    )
    async def test_each_limit_has_a_clear_outcome(self, limits: Limits, code: str, limit: str) -> None:
        if limit == "disk" and not self.has_mounts:
            return  # There it is watched, and noticed a little later: see below.
        async with self.make(limits=limits) as sandbox:
            result = await sandbox.run(code, timeout=20)
            assert not result.success
            assert result.limit == limit, result
            assert (await sandbox.run("1")).value == 1

    async def test_processes_are_limited(self) -> None:
        async with self.make(limits=Limits(processes=20)) as sandbox:
            result = await sandbox.run(
                "import os, time\nfor i in range(100):\n    if not os.fork(): time.sleep(30)\ntime.sleep(5)"
            )
            assert result.limit == "processes", result
            assert (await sandbox.run("1")).value == 1

    async def test_what_is_written_to_the_workspace_is_limited(self, workspace: Path) -> None:
        limits = Limits(disk_bytes=32 << 20, file_bytes=8 << 20)
        async with self.make(workspace=workspace, limits=limits) as sandbox:
            code = "import time\nfor i in range(200): open(f'{i}.bin', 'wb').write(b'x' * (4 << 20)); time.sleep(0.02)"
            result = await sandbox.run(code, timeout=30)
            assert result.limit == "disk", result
            assert sum(path.stat().st_size for path in workspace.iterdir()) < 400 << 20

    async def test_files_of_before_and_of_others_do_not_count(self, workspace: Path) -> None:
        (workspace / "data").write_bytes(bytes(40 << 20))
        await asyncio.sleep(0.2)
        code = "import time\nend = time.time() + 1\nwhile time.time() < end: pass\nlen(open('data', 'rb').read())"
        async with self.make(workspace=workspace, limits=Limits(disk_bytes=32 << 20)) as sandbox:
            running = asyncio.ensure_future(sandbox.run(code))
            await asyncio.sleep(0.2)
            (workspace.parent / "of others").write_bytes(bytes(40 << 20))
            assert (await running).value == 40 << 20

    async def test_a_shell_finds_the_interpreter_that_cells_have(self, sandbox: Sandbox) -> None:
        if not self.has_hosts_programs:
            return
        executable = (await sandbox.run("import sys; sys.prefix")).value
        result = await sandbox.run("python3 -c 'import sys; print(sys.prefix)'", language="bash")
        assert result.stdout.strip() == executable

    async def test_the_most_memory_is_told(self, sandbox: Sandbox, session: Session) -> None:
        small, large = await sandbox.run("1"), await sandbox.run("x = b'x' * (100 << 20); del x")
        assert small.peak_memory is not None
        assert large.peak_memory is not None
        assert large.peak_memory - small.peak_memory > 90 << 20
        for code, language in (("1", "python"), ("true", "sh")):
            assert (await session.run(code, language=language)).peak_memory

    async def test_functions_of_the_host(self, sandbox: Sandbox) -> None:
        def add(a: int, b: int = 1) -> int:
            """Add."""
            return a + b

        async def fail(why: str) -> None:
            raise LookupError(why)

        async with sandbox.session(functions=[add, fail]) as session:
            result = await session.run("import inspect\n[add(40, b=2), str(inspect.signature(add)), add.__doc__]")
            assert result.value == [42, "(a: int, b: int = 1) -> int", "Add."], result.output
            result = await session.run("try: await fail('x')\nexcept LookupError as error: said = str(error)\nsaid")
            assert result.value == "x", result.output
            assert [(call.name, call.outcome) for call in result.calls] == [("fail", Outcome.ERROR)]
            result = await session.run("add('x')")
            assert result.error is not None
            assert (result.error.type, result.calls[0].outcome) == ("TypeError", Outcome.REJECTED)

    async def test_functions_of_the_host_side_by_side(self, sandbox: Sandbox) -> None:
        async def give(number: int) -> str:
            await asyncio.sleep(0)
            return "x" * number

        def give_now(number: int) -> str:
            return "x" * number

        code = (
            "import asyncio\nfrom concurrent.futures import ThreadPoolExecutor\n"
            "found = await asyncio.gather(*(give(i * 1000) for i in range(100)))\n"
            "with ThreadPoolExecutor(4) as pool: found += pool.map(give_now, range(0, 100_000, 1000))\n"
            "[len(each) for each in found] == 2 * list(range(0, 100_000, 1000))"
        )
        async with sandbox.session(functions=[give, give_now]) as session:
            result = await session.run(code)
            assert result.value is True, result.output
            assert len(result.calls) == 200

    async def test_functions_of_the_host_outlive_what_ends_a_cell(self, sandbox: Sandbox) -> None:
        async def hang() -> None:
            await asyncio.sleep(3600)

        def add(a: int, b: int) -> int:
            return a + b

        async with sandbox.session(functions=[hang, add]) as session:
            await session.run("x = 1")
            result = await session.run("await hang()", timeout=0.4)
            assert (result.outcome, result.calls[0].outcome) == (Outcome.TIMEOUT, Outcome.CANCELLED)
            assert (await session.run("add(x, 1)")).value == 2
            mark = await session.checkpoint()
            assert (await session.run("import os\nos._exit(1)")).state_lost
            assert (await session.run("add(2, 2)")).value == 4
            await session.rollback(mark)
            assert (await session.run("add(x, 2)")).value == 3

    async def test_files_of_the_host_can_be_neither_read_nor_written(self, workspace: Path) -> None:
        if not self.isolates:
            return
        code = """
def opened(path, mode):
    try:
        with open(path, mode) as file: return file.read() if mode == "r" else True
    except OSError:
        return None
"""
        secret = workspace / "secret.txt"
        secret.write_text("secret")
        places = [workspace, Path.home(), Path("/tmp"), Path("/var/tmp")]
        named = [str(place / f"coderoom-{uuid.uuid4().hex}") for place in places]
        async with self.make() as sandbox:
            result = await sandbox.run(f"{code}\nopened({str(secret)!r}, 'r')")
            assert result.value is None, result
            await sandbox.run(f"{code}\nfor path in {named}: opened(path, 'w')")
        assert [path for path in named if Path(path).exists()] == []

    async def test_the_network_of_the_host_cannot_be_reached(self) -> None:
        if not self.isolates:
            return
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            address = server.getsockname()
            async with self.make() as sandbox:
                result = await sandbox.run(f"import socket\nsocket.create_connection({address}, 5)")
            assert result.outcome is Outcome.ERROR, result
            with pytest.raises(BlockingIOError):
                server.accept()

    async def test_processes_of_the_host_cannot_be_ended(self) -> None:
        if not self.isolates:
            return
        with subprocess.Popen(["sleep", "60"]) as process:
            code = f"import os\ntry: os.kill({process.pid}, 9)\nexcept OSError as error: print(type(error).__name__)"
            async with self.make() as sandbox:
                result = await sandbox.run(code)
            alive = process.poll() is None
            process.kill()
        assert alive, result

    async def test_the_environment_of_the_host_stays_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        secret = uuid.uuid4().hex
        monkeypatch.setenv("CODEROOM_TEST_SECRET", secret)
        code = f"""
import glob, os
found = [name for name, value in os.environ.items() if value == {secret!r}]
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        with open(path, "rb") as file: found += [path] * (b"CODEROOM_TEST_SECRET" in file.read())
    except OSError:
        pass
found
"""
        with subprocess.Popen(["sleep", "60"]) as process:  # It has the variable, too.
            async with self.make() as sandbox:
                found = (await sandbox.run(code)).value
            process.kill()
        assert found == [] or not self.isolates, found

    async def test_no_process_is_left(self) -> None:
        seconds = 1_000_000 + os.getpid()  # To find it among those of others.
        sandbox = self.make()
        result = await sandbox.session().run(f"import subprocess\nsubprocess.Popen(['sleep', '{seconds}']).pid > 0")
        assert result.value is True, result
        await sandbox.close()
        for _ in range(200):
            if not _running(f"sleep\0{seconds}\0".encode()):
                return
            await asyncio.sleep(0.05)
        pytest.fail("a process of the code is still there")


def _running(command: bytes) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == command:
                return True
        except OSError:  # It has just ended.
            continue
    return False

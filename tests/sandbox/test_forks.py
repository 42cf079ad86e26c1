"""Forks of sessions: what they have of the first one, what they share with nobody, and how they end."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import MOST_FORKS_IN_A_ROW, MOST_FORKS_WITH_LANDLOCK, Limits, Sandbox, Session

from .places import (
    Place,
    on_every_kind_of_wall,
    on_monty,
    on_walls_with_mounts,
)

PRIVATE = """
with open("/proc/self/smaps_rollup") as file:
    sizes = {line.split()[0]: int(line.split()[1]) for line in file if line.endswith("kB\\n")}
sizes["Private_Dirty:"] + sizes["Private_Clean:"]
"""
LISTED = "sorted(int(name) for name in os.listdir('/proc') if name.isdigit())"
PIDS = f"import os\n{LISTED}"


ENTERS = r"""
import ctypes, errno, fcntl, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
own = os.readlink("/proc/self/ns/user")
def space(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/user")
    except OSError:
        return own
pid = next(name for name in os.listdir("/proc") if name.isdigit() and space(name) != own)
def call(name, *values):
    if getattr(libc, name)(*values) < 0:
        raise OSError(ctypes.get_errno(), name)
def set_option(level, name):
    with socket.socket() as sock:
        sock.setsockopt(level, name, b"x" * 100)
def set_flags():
    with socket.socket() as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0))
attempts = [
    lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    lambda: call("umount2", b"/tmp", 2),
    lambda: call("unshare", 0x20000),
    lambda: call("chroot", b"/tmp"),
    lambda: call("sethostname", b"x", 1),
    lambda: call("ptrace", 16, int(pid), 0, 0),
    lambda: call("setns", os.open("/proc/1/ns/user", os.O_RDONLY), 0x10000000),
    lambda: open("/proc/sys/net/ipv4/tcp_rmem", "w").write("4096 65536 99999999"),
    lambda: set_option(0, 64),
    lambda: set_option(41, 64),
    set_flags,
    lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255),
    lambda: os.mknod("/tmp/disk", 0o60600, 0x0801),
    lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
]
reader, writer = os.pipe()
child = os.fork()
if not child:
    spaces = [(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), number) for kind, number in
              (("user", 0x10000000), ("ipc", 0x08000000), ("net", 0x40000000), ("pid", 0x20000000))]
    entered = [libc.setns(*each) for each in spaces][0] == 0
    said = [str(int(entered))]
    for attempt in attempts:
        try:
            attempt()
            said.append("done")
        except OSError as error:
            said.append(errno.errorcode[error.errno])
    os.write(writer, " ".join(said).encode())
    os._exit(0)
os.waitpid(child, 0)
entered, *failed = os.read(reader, 10_000).decode().split()
(entered == "1", failed)
"""


async def value_of(session: Session, code: str) -> Any:
    result = await session.run(code)
    assert result.success, result.output
    return result.value


async def error_of(session: Session, code: str) -> str:
    error = (await session.run(code)).error
    assert error is not None
    return error.type


def listed(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


async def close(*sessions: Session) -> None:
    for each in sessions:
        await each.close()


class TestWhatTheyHave:
    @on_every_kind_of_wall
    async def test_everything_of_the_first_one_and_nothing_of_each_other(self, session: Session) -> None:
        await value_of(
            session,
            "import os, random, tempfile\nx = [0]\nos.environ['MARK'] = 'kept'\n"
            "os.makedirs('below/deep')\nos.chdir('below')\n"
            "open(tempfile.gettempdir() + '/scratch', 'w').write('s')\n"
            "os.symlink('deep', 'link')\nos.chmod('deep', 0o500)\nfile = open('../log', 'w')\n"
            "print('first', file=file, flush=True)\nrandom.seed(7)",
        )
        one, other = await session.fork(2)
        look = (
            "x.append({0})\nprint({0}, file=file, flush=True)\n"
            "(x, os.environ['MARK'], os.path.basename(os.getcwd()), open(tempfile.gettempdir() + '/scratch').read(), "
            "os.readlink('link'), oct(os.stat('deep').st_mode), open('../log').read(), random.random())"
        )
        seen = [await value_of(each, look.format(n)) for n, each in enumerate((session, one, other))]
        number = seen[0][-1]
        assert seen == [([0, n], "kept", "below", "s", "deep", "0o40500", f"first\n{n}\n", number) for n in range(3)]
        await close(one, other)

    async def test_files_of_a_workspace_stay_as_they_are(self, tmp_path: Path) -> None:
        (tmp_path / "data.txt").write_text("one")
        async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
            await value_of(session, "open('made.txt', 'w').write('m')")
            (fork,) = await session.fork()
            result = await fork.run(
                "open('data.txt', 'a').write('two')\nopen('data.txt').read() + open('made.txt').read()"
            )
            assert result.value == "onetwom"
            assert [(each.name, each.data) for each in result.artifacts] == [("data.txt", b"onetwo")]
            assert (tmp_path / "data.txt").read_text() == "one"
            await fork.restart()
            assert await value_of(fork, "open('data.txt').read()") == "onetwo"
            (again,) = await fork.fork()
            assert await value_of(again, "open('data.txt').read()") == "onetwo"

    async def test_changes_of_an_overlay_go_on_apart(self, tmp_path: Path) -> None:
        for name in ("kept", "gone", "changed"):
            (tmp_path / name).write_text(f"{name}\n")
        async with Sandbox(workspace=tmp_path, workspace_mode="overlay") as sandbox, sandbox.session() as session:
            await value_of(
                session, "import os\nos.remove('gone')\nfile = open('log', 'w')\nopen('changed', 'a').write('1')"
            )
            one, other = await session.fork(2)
            await session.close()
            await value_of(one, "print('one', file=file, flush=True)\nos.remove('changed')")
            look = "sorted(os.listdir()), open('log').read(), open('changed').read()"
            assert await value_of(other, look) == (["changed", "kept", "log"], "", "changed\n1")
            seen = {change.path: change.kind for change in await one.changes()}
            assert seen == {"changed": "deleted", "gone": "deleted", "log": "added"}
            await one.commit()
            assert sorted(each.name for each in tmp_path.iterdir()) == ["kept", "log"]
            assert (tmp_path / "log").read_text() == "one\n"
            await close(one, other)

    @pytest.mark.slow
    async def test_random_numbers_of_their_own_on_request(self) -> None:
        async with Sandbox(preload=["numpy"]) as sandbox, sandbox.session() as session:
            await value_of(session, "import random, numpy\nrandom.seed(1)\nnumpy.random.seed(1)")
            forks = await session.fork(2, reseed=True) + await session.fork(2)
            numbers = [await value_of(each, "random.random(), float(numpy.random.rand())") for each in forks]
            assert len(set(numbers)) == 3
            assert numbers[2] == numbers[3]
            assert not {each[0] for each in numbers[:2]} & {each[0] for each in numbers[2:]}
            assert not {each[1] for each in numbers[:2]} & {each[1] for each in numbers[2:]}

    @on_every_kind_of_wall
    async def test_functions_of_the_host_and_the_variables_of_bash(self, sandbox: Sandbox) -> None:
        asked = []

        def note(what: str) -> int:
            asked.append(what)
            return len(asked)

        async with sandbox.session([note]) as session:
            await value_of(session, "note('before')")
            await session.run("NAME=kept; mkdir below; cd below; echo first > file", language="bash")
            (fork,) = await session.fork()
            assert await value_of(fork, "note('after')") == 2
            said = await fork.run(
                "echo $NAME $(basename $PWD); echo fork > file; echo > ${TMPDIR:-/tmp}/x", language="bash"
            )
            assert said.output == "kept below\n"
            assert (await session.run("cat file", language="bash")).output == "first\n"
            await fork.close()
        assert asked == ["before", "after"]

    async def test_no_variables_of_javascript_which_they_say(self, session: Session) -> None:
        await session.run("let x = 1", language="javascript")
        (fork,) = await session.fork()
        (deeper,) = await fork.fork()
        for each in (fork, deeper):
            first, second = [await each.run("console.log(typeof x)", language="javascript") for _ in range(2)]
            said = "[The process of this language has ended: its earlier variables are gone.]\n"
            assert [first.output, second.output] == [f"{said}undefined\n", "undefined\n"]
        assert (await session.run("console.log(x)", language="javascript")).output == "1\n"
        await close(fork, deeper)

    async def test_a_network_of_their_own(self) -> None:
        serve = (
            "import socket, threading\nserver = socket.create_server(('127.0.0.1', 8000))\n"
            "def answer():\n    server.accept()[0].sendall(b'{}')\nthreading.Thread(target=answer, daemon=True).start()"
        )
        reach = "import socket\nsocket.create_connection(('127.0.0.1', 8000)).recv(9)"
        async with Sandbox(local_network=True) as sandbox, sandbox.session() as session:
            one, other = await session.fork(2)
            await value_of(one, serve.format("one"))
            assert await error_of(other, reach) == "ConnectionRefusedError"
            await value_of(other, serve.format("other"))
            assert await value_of(other, reach) == b"other"
            assert await value_of(one, reach) == b"one"

    async def test_forks_of_forks_with_checkpoints_of_their_own(self, session: Session) -> None:
        await value_of(session, "x = 1")
        mark = await session.checkpoint()
        (fork,) = await session.fork()
        with pytest.raises(RequestError, match="another session's"):
            await fork.rollback(mark)
        own = await fork.checkpoint()
        await value_of(fork, "x = 2")
        (deeper,) = await fork.fork()
        await fork.rollback(own)
        assert [await value_of(each, "x") for each in (session, fork, deeper)] == [1, 1, 2]
        await close(fork, deeper)

    @pytest.mark.slow
    async def test_memory_is_shared_until_it_is_written_to(self, session: Session) -> None:
        await value_of(session, "data = bytearray(b'x' * 100_000_000)")
        forks = await session.fork(8)
        assert max([await value_of(each, PRIVATE) for each in forks]) < 5_000
        assert await value_of(forks[0], "data[::4096] = bytes(len(data[::4096]))\n" + PRIVATE) > 90_000
        assert await value_of(forks[1], "sum(data[:9]) == 9 * ord('x')")
        await close(*forks)


class TestBecoming:
    @on_every_kind_of_wall
    async def test_the_session_goes_on_as_its_fork(self, place: Place, workspace: Path) -> None:
        for name in ("kept", "changed", "gone"):
            (workspace / name).write_text(name)
        os.utime(workspace / "kept", (5, 5))
        async with place.sandbox(workspace=workspace) as sandbox, sandbox.session() as session:
            await value_of(session, "import os\nx = [1]\nfile = open('log', 'w')\nfile.write('a')\nfile.flush()")
            folder = await value_of(session, "os.getcwd()")
            mark = await session.checkpoint()
            winner, loser = await session.fork(2)
            await value_of(
                winner,
                "x.append(2)\nfile.write('b')\nfile.flush()\nos.makedirs('new/deep', 0o700)\nos.chdir('new')\n"
                "import tempfile\nopen(tempfile.gettempdir() + '/scratch', 'w').write('s')\n"
                "os.environ['MARK'] = 'kept'\nos.remove('../gone')\n"
                "open('../changed', 'a').write('!')\nos.chmod('../changed', 0o640)\nos.symlink('deep', 'link')",
            )
            await value_of(loser, "x.append(3)\nopen('lost', 'w').write('l')")
            await value_of(session, "x.append(4)\nopen('later', 'w').write('l')")
            await session.become(winner)
            assert listed(workspace) == ["changed", "kept", "log", "new", "new/deep", "new/link"]
            assert (workspace / "changed").read_text() == "changed!"
            assert (workspace / "changed").stat().st_mode & 0o777 == 0o640
            assert (workspace / "kept").stat().st_mtime == 5
            there = "x, os.getcwd(), os.environ['MARK'], open(tempfile.gettempdir() + '/scratch').read()"
            assert await value_of(session, there) == ([1, 2], f"{folder}/new", "kept", "s")
            result = await session.run("file.write('c')\nfile.flush()\nopen(os.getcwd() + '/later', 'w').write('x')")
            assert [each.path for each in result.artifacts] == [workspace / "log", workspace / "new" / "later"]
            assert (workspace / "log").read_text() == "abc"
            assert (await session.run("ls", language="bash")).output == "changed\nkept\nlog\nnew\n"
            with pytest.raises(RequestError, match="gone"):
                await session.rollback(mark)
            with pytest.raises(RequestError, match="closed"):
                await winner.run("x")
            assert await value_of(loser, "x, sorted(os.listdir())") == (
                [1, 3],
                ["changed", "gone", "kept", "log", "lost"],
            )
            (again,) = await session.fork()
            await value_of(again, "x.append(5)\nos.remove('later')")
            await session.become(again)
            assert await value_of(session, "x, sorted(os.listdir())") == ([1, 2, 5], ["deep", "link"])
            await session.restart()
            assert await value_of(session, "import os\nos.getcwd(), len(os.listdir())") == (folder, 4)
            await loser.close()

    async def test_files_in_memory_and_changes_of_an_overlay(self, session: Session, tmp_path: Path) -> None:
        (tmp_path / "old").write_text("o")
        async with Sandbox(workspace=tmp_path, workspace_mode="overlay") as sandbox, sandbox.session() as other:
            for each in (session, other):
                await value_of(each, "x = 1\nopen('first', 'w').write('f')")
                (fork,) = await each.fork()
                await value_of(fork, "import os\nx = 2\nos.remove('first')\nopen('second', 'w').write('s')")
                await each.become(fork)
                assert await value_of(each, "x, 'first' in os.listdir(), open('second').read()") == (2, False, "s")
            assert [change.path for change in await other.changes()] == ["second"]
            await other.commit()
            assert listed(tmp_path) == ["old", "second"]

    async def test_links_that_code_has_planted_are_not_followed(self, tmp_path: Path) -> None:
        outside, folder = tmp_path / "outside", tmp_path / "folder"
        for each in (outside, folder / "plain"):
            each.mkdir(parents=True)
            (each / "kept").write_text("k")
        async with Sandbox(workspace=folder) as sandbox, sandbox.session() as session:
            await value_of(session, f"import os, shutil\nos.symlink({str(outside)!r}, 'link')")
            (fork,) = await session.fork()
            await value_of(
                fork,
                f"shutil.rmtree('plain')\nos.symlink({str(outside)!r}, 'plain')\nos.remove('link')\nos.mkdir('link')\n"
                "open('link/made', 'w').write('m')\nopen('link/kept', 'w').write('changed')",
            )
            await session.become(fork)
            assert await value_of(session, "sorted(os.listdir('link')), os.path.islink('plain')") == (
                ["kept", "made"],
                True,
            )
        assert {each.name: each.read_text() for each in outside.iterdir()} == {"kept": "k"}
        assert (folder / "plain").readlink() == outside

    async def test_what_code_may_only_read_stays_as_it_is(self, tmp_path: Path) -> None:
        tools = tmp_path / "deep" / "tools"  # As a virtual environment in the workspace.
        tools.mkdir(parents=True)
        (tools / "program").write_text("p")
        async with Sandbox(workspace=tmp_path, readable=[tools]) as sandbox, sandbox.session() as session:
            changed, removed, replaced = await session.fork(3)
            await value_of(changed, "open('deep/tools/program', 'a').write('!')\nopen('deep/tools/m', 'w').close()")
            await value_of(removed, "import shutil\nopen('made', 'w').write('m')\nshutil.rmtree('deep')")
            await value_of(replaced, "import shutil\nshutil.rmtree('deep')\nopen('deep', 'w').write('f')")
            with pytest.raises(RequestError, match="'deep', which has to stay"):
                await session.become(replaced)
            await session.become(changed)
            assert listed(tmp_path) == ["deep", "deep/tools", "deep/tools/program"]
            await session.become(removed)
            assert listed(tmp_path) == ["deep", "deep/tools", "deep/tools/program", "made"]
            assert (tools / "program").read_text() == "p"
            assert await error_of(session, "open('deep/tools/program', 'w')") == "OSError"
            await replaced.close()

    @pytest.mark.parametrize(
        "unfit",
        [
            "os.rmdir('sub')\nopen('sub', 'w').write('f')",  # The pipe in it stays.
            "open('large', 'w').truncate(250_000_000)\nfor n in range(5): os.link('large', f'large{n}')",
            "import sys\nsys.modules['coderoom_guest.reopening'].opened_below = lambda *_: os._exit(0)",
        ],
        ids=["in the way", "too large", "its process ends"],
    )
    async def test_what_fails_changes_nothing(self, unfit: str, tmp_path: Path) -> None:
        (tmp_path / "closed").mkdir(0o500)
        (tmp_path / "sub").mkdir()
        os.mkfifo(tmp_path / "sub" / "pipe")
        async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
            await value_of(session, "import os\nx = 1\nopen('first', 'w').write('f')")
            before = listed(tmp_path)
            unfitting, other = await session.fork(2)
            await value_of(unfitting, f"x = 2\nos.remove('first')\n{unfit}")
            with pytest.raises(RequestError):
                await session.become(unfitting)
            assert listed(tmp_path) == before
            assert (tmp_path / "closed").stat().st_mode & 0o777 == 0o500
            assert await value_of(session, "x, open('first').read()") == (1, "f")
            await value_of(other, "x = 3")
            await session.become(other)
            assert await value_of(session, "x") == 3
            await unfitting.close()

    async def test_variables_that_are_lost_on_the_way_are_not_kept_in_silence(self, tmp_path: Path) -> None:
        async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
            (fork,) = await session.fork()
            await value_of(fork, "import os, sys\nopen('made', 'w').write('m')")
            await value_of(fork, "sys.modules['coderoom_guest.reopening'].reopen = lambda *_: os._exit(0)")
            await session.become(fork)
            result = await session.run("import os\nos.listdir()")
            assert (result.value, result.state_lost) == (["made"], True)

    async def test_programs_end_and_threads_stay(self, tmp_path: Path) -> None:
        async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
            program = await session.start(["sleep", "1000"])
            (fork,) = await session.fork()
            await value_of(
                fork,
                "import subprocess, threading\nprogram = subprocess.Popen(['sleep', '1000'])\n"
                "go, done = threading.Event(), []\nthread = threading.Thread(target=lambda: done.append(go.wait()))\n"
                "thread.start()",
            )
            await session.become(fork)
            assert await program.wait() == 137
            assert await value_of(session, "go.set()\nthread.join()\nprogram.wait(), done") == (-9, [True])
            assert len(await value_of(session, PIDS)) == 2

    async def test_it_leaves_the_place_of_the_fork(self) -> None:
        async with Sandbox(concurrency=3) as sandbox, sandbox.session() as session:
            await value_of(session, "x = 0")
            for number in range(4):
                first, second = await session.fork(2)
                await value_of(first, "x += 1")
                await session.become(first)
                assert await value_of(second, "x") == number
                await second.close()
            assert await value_of(session, "x") == 4

    @on_every_kind_of_wall
    @pytest.mark.slow
    async def test_as_often_as_the_kernel_allows(self, place: Place, workspace: Path) -> None:
        most = MOST_FORKS_WITH_LANDLOCK if place.wall in ("landlock", "sandlock", "docker") else MOST_FORKS_IN_A_ROW
        async with place.sandbox(workspace=workspace) as sandbox, sandbox.session() as session:
            await value_of(session, "x = 0")
            for _ in range(most):
                (fork,) = await session.fork()
                await value_of(fork, "x += 1")
                await session.become(fork)
            with pytest.raises(RequestError, match=f"{most} in a row"):
                await session.fork()
            assert await value_of(session, "x") == most

    async def test_only_a_fork_of_its_own(self, sandbox: Sandbox) -> None:
        async with sandbox.session() as session, sandbox.session() as other:
            (fork,), (others,) = await session.fork(), await other.fork()
            for one, another in ((session, other), (session, others), (fork, session), (session, session)):
                with pytest.raises(RequestError, match="a fork of its own"):
                    await one.become(another)
            await fork.close()
            with pytest.raises(RequestError, match="closed"):
                await session.become(fork)
            assert await value_of(session, "1") == 1
            await others.close()


class TestBeforeTheyAreUsed:
    @on_every_kind_of_wall
    async def test_they_stay_as_they_were_whatever_the_first_one_does(self, session: Session) -> None:
        await value_of(
            session,
            "import os, tempfile\nx = [1]\nscratch = lambda how: open(tempfile.gettempdir() + '/scratch', how)\n"
            "open('kept', 'w').write('k')\nscratch('w').write('s')",
        )
        mark = await session.checkpoint()
        one, other, third, last = await session.fork(4)
        look = "x, os.path.basename(os.getcwd()), sorted(os.listdir()), scratch('r').read()"
        then = [1], "workspace", ["kept"], "s"
        await value_of(session, "x.append(2)\nos.remove('kept')\nscratch('w').write('new')\nos.chdir('/')")
        assert await value_of(one, look) == then
        await session.rollback(mark)
        assert (await session.run("import time\nwhile True: time.sleep(1)", timeout=0.2)).outcome == "timeout"
        assert await value_of(other, look) == then
        await session.restart()
        assert await value_of(third, look) == then
        await session.close()
        assert await value_of(last, look) == then
        await close(one, other, third, last)

    @on_every_kind_of_wall
    async def test_there_can_be_more_of_the_same_state(self, session: Session) -> None:
        await value_of(session, "import random\nx = 1\nrandom.seed(1)\nopen('kept', 'w').write('k')")
        (fork,) = await session.fork()
        await value_of(session, "x = 2\nopen('kept', 'w').write('new')")
        for _ in range(MOST_FORKS_IN_A_ROW + 1):
            (more,) = await fork.fork()
            await fork.close()
            fork = more
        one, other = await fork.fork(2, reseed=True)
        await close(fork, session)
        look = "x, open('kept').read(), random.random()"
        found = [await value_of(each, look) for each in (one, other)]
        assert [each[:2] for each in found] == [(1, "k")] * 2
        assert found[0][2] != found[1][2]
        assert await value_of(one, "x = 3") is None
        assert await value_of(other, "x") == 1
        await close(one, other)

    async def test_what_they_are_made_of_ends_with_the_last_one(self, session: Session) -> None:
        alive = f"import os\npids = {LISTED}\nsum(open(f'/proc/{{pid}}/stat').read().split()[2] != 'Z' for pid in pids)"
        one, other = await session.fork(2)
        assert await value_of(session, alive) == 3
        await value_of(one, "1")
        await close(one, other)
        for _ in range(100):
            if (left := await value_of(session, alive)) == 2:
                break
        assert left == 2

    async def test_changes_of_an_overlay_are_those_of_then(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("data\n")
        async with Sandbox(workspace=tmp_path, workspace_mode="overlay") as sandbox, sandbox.session() as session:
            await value_of(session, "open('data', 'a').write('1')")
            one, other = await session.fork(2)
            await session.discard()
            await value_of(session, "open('later', 'w').write('l')")
            assert await value_of(one, "open('data').read()") == "data\n1"
            await session.commit()
            await session.close()
            assert {each.path for each in await other.changes()} == {"data"}
            await close(one, other)

    @pytest.mark.slow
    async def test_the_memory_they_keep_is_not_the_first_ones(self) -> None:
        async with Sandbox(limits=Limits(memory_bytes=400_000_000)) as sandbox, sandbox.session() as session:
            await value_of(session, "import time\ndata = bytearray(b'x') * 250_000_000")
            (fork,) = await session.fork()
            await value_of(session, "data[::4096] = bytes(len(data[::4096]))\ntime.sleep(1)")
            assert await value_of(fork, "data.count(b'x')") == 250_000_000

    async def test_code_that_ends_what_they_are_made_of_keeps_its_own_state(self, session: Session) -> None:
        await value_of(session, "import os, signal\nx = 1")
        (fork,) = await session.fork()
        pids = await value_of(session, PIDS)
        await value_of(session, f"os.kill(({set(pids[1:])} - {{os.getpid()}}).pop(), signal.SIGKILL)")
        with pytest.raises(RequestError, match="cannot be forked"):
            await fork.start()
        assert await value_of(session, "x") == 1
        await fork.close()
        await close(*await session.fork(2))


class TestHowTheyEnd:
    @on_every_kind_of_wall
    @pytest.mark.slow
    async def test_they_outlive_the_first_one_and_each_other(self, place: Place) -> None:
        async with place.sandbox() as sandbox:
            session = sandbox.session()
            await value_of(session, "x = 1\nimport subprocess\nprogram = subprocess.Popen(['sleep', '1000'])")
            forks = await session.fork(3)
            await session.close()
            with pytest.raises(RequestError, match="closed"):
                await session.run("x")
            assert await value_of(forks[0], "x") == 1
            ended = await forks[0].run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
            assert ended.state_lost
            assert ended.exit_code == 137
            assert await error_of(forks[0], "x") == "NameError"
            await forks[0].close()
            (deeper,) = await forks[1].fork()
            await forks[1].close()
            assert [await value_of(each, "x") for each in (forks[2], deeper)] == [1, 1]
            await close(forks[2], deeper)
            async with sandbox.session() as fresh:
                assert await error_of(fresh, "x") == "NameError"

    async def test_the_end_of_the_first_ones_process_harms_no_fork(self, session: Session) -> None:
        await value_of(session, "x = 1\nimport os, signal")
        (fork,) = await session.fork()
        assert (await session.run("os.kill(os.getpid(), signal.SIGKILL)")).state_lost
        stopped = await session.run("while True: pass", timeout=0.2)
        assert stopped.outcome == "timeout"
        await session.restart()
        assert await value_of(fork, "x") == 1
        await fork.close()

    @on_every_kind_of_wall
    @pytest.mark.slow
    async def test_limits_hold_for_each(self, place: Place) -> None:
        limits = Limits(memory_bytes=400_000_000, processes=8, wall_seconds=20)
        async with place.sandbox(limits=limits) as sandbox, sandbox.session() as session:
            await value_of(session, "data = b'x' * 200_000_000\nimport time, subprocess")
            greedy, forking, calm = await session.fork(3)
            assert (await greedy.run("more = data * 2\ntime.sleep(5)")).limit == "memory"
            many = "programs = [subprocess.Popen(['sleep', '10']) for _ in range(30)]\ntime.sleep(5)"
            assert (await forking.run(many)).limit == "processes"
            slow = await calm.run("while True: pass", timeout=0.2)
            assert slow.outcome == "timeout"
            assert not slow.state_lost
            assert [await value_of(each, "len(data)") for each in (session, calm)] == [200_000_000] * 2

    async def test_those_that_nobody_closes_leave_places(self) -> None:
        async with Sandbox(concurrency=3) as sandbox, sandbox.session() as session:
            forks = await session.fork(2)
            with pytest.raises(RequestError, match="places for 0 more sessions"):
                await session.fork()
            forks.clear()
            gc.collect()
            await asyncio.sleep(0)
            await close(*await session.fork(2))
            await close(*await session.fork(2))

    async def test_their_cells_run_at_the_same_time(self, session: Session) -> None:
        await value_of(session, "import time\nx = 1")
        forks = await session.fork(8)
        cells = (
            each.run(f"time.sleep(0.2)\nopen('own', 'w').write(str({n}))\nx + {n}") for n, each in enumerate(forks)
        )
        assert [each.value for each in await asyncio.gather(*cells)] == list(range(1, 9))
        assert [await value_of(each, "open('own').read()") for each in forks] == [str(n) for n in range(8)]
        await close(*forks)


class TestWhatIsRefused:
    @on_monty
    async def test_by_engines_without_forks(self, session: Session) -> None:
        with pytest.raises(RequestError, match="engine 'monty' cannot be forked"):
            await session.fork()

    @pytest.mark.parametrize("count", [0, -1, True, 1.5, 1000])
    async def test_wrong_counts(self, session: Session, count: Any) -> None:
        with pytest.raises(RequestError, match=r"count=|128 open forks"):
            await session.fork(count)

    @on_every_kind_of_wall
    async def test_files_that_are_too_large(self, place: Place, workspace: Path) -> None:
        (workspace / "large").write_bytes(b"x" * 3_000_000)
        limits = Limits(disk_bytes=2_000_000)
        async with place.sandbox(workspace=workspace, limits=limits) as sandbox, sandbox.session() as session:
            with pytest.raises(RequestError, match="files cannot be copied"):
                await session.fork()
            (workspace / "large").unlink()
            await close(*await session.fork())


class TestWhatCodeCannotDo:
    @on_walls_with_mounts
    async def test_see_other_forks_or_the_first_one(self, session: Session) -> None:
        await value_of(session, "import subprocess\nprogram = subprocess.Popen(['sleep', '1000'])")
        one, other = await session.fork(2)
        await value_of(
            one, "import subprocess\nopen('secret', 'w').write('s')\np = subprocess.Popen(['sleep', '1000'])"
        )
        assert len(await value_of(one, PIDS)) == 3
        assert len(await value_of(other, PIDS)) == 2
        assert await value_of(other, "os.path.exists('/workspace/secret')") is False
        await close(one, other)

    async def test_keep_rights_or_get_them_again(self, tmp_path: Path) -> None:
        attack = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, kind):
    fd = os.open(name, os.O_RDONLY)
    result = libc.setns(fd, kind)
    os.close(fd)
    return os.strerror(ctypes.get_errno()) if result else "entered"
kinds = {"user": 0x10000000, "pid": 0x20000000, "mnt": 0x20000, "ipc": 0x08000000, "net": 0x40000000, "uts": 0x04000000}
status = open("/proc/self/status").read()
caps = {line.split()[1].strip("0") for line in status.splitlines() if line.startswith(("CapInh", "CapPrm", "CapEff"))}
entered = sorted({attempt(f"/proc/self/ns/{name}", kind) for name, kind in kinds.items()})
(caps, entered, libc.unshare(0x10000000), libc.umount2(b"/workspace", 2))
"""
        async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
            (fork,) = await session.fork()
            for each in (session, fork, session):
                rights, entered, *made = await value_of(each, attack)
                assert rights == {""}
                assert "entered" not in entered
                assert made == [-1, -1]
                if each is fork:
                    await session.become(fork)

    @pytest.mark.parametrize("more", [{}, {"local_network": True}])
    async def test_use_the_rights_in_a_fork_of_their_session(self, more: dict[str, Any]) -> None:
        # Code can enter the namespaces of its session's forks, as of all that it starts, and has rights there.
        async with Sandbox(**more) as sandbox, sandbox.session() as session:
            (fork,) = await session.fork()
            await fork.start()
            entered, failed = await value_of(session, ENTERS)
            assert entered
            assert set(failed) <= {"EPERM", "EACCES", "EROFS", "EINVAL", "ENOENT"}
            assert len(failed) == 14
            await fork.close()

    async def test_fool_the_host_by_a_process_that_enters(self, session: Session) -> None:
        # The process that enters is a fork of one in which code has run.
        await value_of(
            session,
            "import gc, os, sys\nfrom coderoom_guest import forks\nforks.reseed = lambda: os._exit(0)\nx = 1",
        )
        (broken,) = await session.fork(reseed=True)
        with pytest.raises(RequestError, match="fork"):
            await broken.start()
        (fork,) = await session.fork()
        assert await value_of(fork, "x") == 1
        await fork.close()

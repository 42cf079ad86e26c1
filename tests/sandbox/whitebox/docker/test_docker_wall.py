"""What the Docker wall keeps in and out, on a real engine, with a stub for a worker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox import Limits, Sandbox
from coderoom.sandbox.walls.docker import wall

from .common import Start, as_root, ours
from .stub import ask

pytestmark = pytest.mark.docker


async def test_code_is_nobody_and_has_no_rights(start: Start) -> None:
    worker = await start()
    code = """
answer = {line.split(":")[0]: line.split()[1:] for line in open("/proc/self/status")}
answer["pid"] = os.getpid()
"""
    status = await ask(worker, code)
    assert int(status["Uid"][0]) >= 10_000
    assert len(set(status["Uid"] + status["Gid"])) == 1
    assert status["Groups"] in ([], [status["Gid"][0]])
    assert {int(status[f"Cap{kind}"][0], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert status["NoNewPrivs"] == ["1"]
    assert status["Seccomp"] == ["2"]
    assert status["pid"] == 1


async def test_each_worker_is_another_nobody(start: Start) -> None:
    one, other = await asyncio.gather(start(), start())
    assert await ask(one, "answer = os.getuid()") != await ask(other, "answer = os.getuid()")


async def test_only_what_is_in_memory_can_be_written(start: Start) -> None:
    worker = await start()
    code = """
import tempfile
answer = {}
for folder in ("/", "/dev", "/etc", "/usr", "/run", "/var/tmp", "/run/coderoom/control", "/proc/sys/kernel",
               "/run/coderoom/guest", "/tmp", "/workspace", "/dev/shm"):
    try:
        tempfile.TemporaryFile(dir=folder).close()
        answer[folder] = True
    except OSError:
        answer[folder] = False
"""
    writable = await ask(worker, code)
    assert [folder for folder, can in writable.items() if can] == ["/tmp", "/workspace", "/dev/shm"]


async def test_programs_in_memory_can_be_run(start: Start) -> None:
    worker = await start()
    code = """
import subprocess
for folder in ("/tmp", "/workspace"):
    with open(folder + "/program", "w") as file:
        file.write("#!/bin/sh\\necho ran")
    os.chmod(folder + "/program", 0o755)
answer = [subprocess.check_output([folder + "/program"]).decode() for folder in ("/tmp", "/workspace")]
"""
    assert await ask(worker, code) == ["ran\n", "ran\n"]


async def test_there_is_no_network_unless_asked_for(start: Start) -> None:
    interfaces = "import socket; answer = sorted(name for _, name in socket.if_nameindex())"
    assert await ask(await start(), interfaces) == ["lo"]
    assert len(await ask(await start(network=True), interfaces)) > 1


async def test_limits_are_the_containers(start: Start) -> None:
    limits = Limits(memory_bytes=64 * 2**20, disk_bytes=2**20, processes=4)
    worker = await start(limits=limits)
    code = """
import glob, resource
def read(*names):
    found = [path for name in names for path in glob.glob("/sys/fs/cgroup/" + name)]
    return int(open(found[0]).read().split()[0])
answer = [
    read("memory.max", "memory/memory.limit_in_bytes"),
    read("pids.max", "pids/pids.max"),
    resource.getrlimit(resource.RLIMIT_CORE),
    [os.statvfs(folder).f_blocks * os.statvfs(folder).f_frsize for folder in ("/tmp", "/workspace", "/dev/shm")],
]
"""
    memory, processes, core, sizes = await ask(worker, code)
    assert memory == (64 + 2 + 256) * 2**20
    assert processes == 4 * 4 + 64
    assert core == [0, 0]
    assert sizes == [2**20] * 3


async def test_options_of_a_spec_come_first(start: Start) -> None:
    worker = await start(options={"memory": "200m", "processes": 30, "cpus": 0.5})
    code = """
import glob
answer = [open(path).read().split()[0] for path in glob.glob("/sys/fs/cgroup/**/*", recursive=True)
          if path.endswith(("/memory.max", "/memory.limit_in_bytes", "/pids.max", "/cpu.max", "/cpu.cfs_quota_us"))]
"""
    assert sorted(await ask(worker, code)) == sorted([str(200 * 2**20), "30", "50000"])


async def test_the_worker_is_told_its_environment(start: Start) -> None:
    worker = await start(env={"ONE": "1"})
    assert worker.boot["environment"] == {"ONE": "1"}
    assert worker.boot["identity"] is None
    assert worker.boot["rooms"] == "plain"
    # What the container itself has is neither from here nor shown to others who may ask the engine.
    assert await ask(worker, "answer = 'ONE' in os.environ") is False
    assert await ask(worker, "answer = os.uname().nodename") == "coderoom"


async def test_descriptors_pass_the_wall(start: Start) -> None:
    worker = await start()
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        assert await ask(worker, "answer = os.write(fds[0], b'from inside'); os.close(fds[0])", [writer]) == 11
        os.close(writer)
        assert pipe.read() == b"from inside"


async def test_nobody_else_can_connect(start: Start, temporary: Path) -> None:
    worker = await start()
    assert await ask(worker, "answer = os.path.exists('/run/coderoom/control/socket')") is False
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "owner", [pytest.param(None, id="own"), pytest.param(0, marks=as_root), pytest.param(54321, marks=as_root)]
)
async def test_files_belong_to_the_workspaces_owner(start: Start, tmp_path: Path, owner: int | None) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "before").mkdir(parents=True)
    if owner is not None:
        for path in (workspace, workspace / "before"):
            os.chown(path, owner, owner)
    worker = await start(workspace)
    code = """
os.mkdir("/workspace/made")
for path in ("made/inside", "before/inside", "file"):
    open("/workspace/" + path, "w").write(path)
answer = [os.getuid(), sorted(os.listdir("/workspace"))]
"""
    uid, listed = await ask(worker, code)
    assert uid != 0
    assert listed == ["before", "file", "made"]
    await worker.end()
    paths = [workspace, *workspace.rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in paths} == {(workspace.stat().st_uid,) * 2}
    assert workspace.stat().st_uid == (os.geteuid() if owner is None else owner)
    assert (workspace / "before" / "inside").read_text() == "before/inside"


@as_root
async def test_root_can_have_files_of_others_removed(start: Start, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "theirs").touch()
    os.chown(workspace / "theirs", 54321, 54321)
    worker = await start(workspace)
    assert await ask(worker, "os.remove('/workspace/theirs'); answer = os.listdir('/workspace')") == []


@pytest.fixture
def plain_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that cannot show its files as another user's, as root's."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@as_root
async def test_a_workspace_that_cannot_be_shown_as_anothers_is_lent(
    start: Start, plain_disk: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    (plain_disk / "before").mkdir()
    worker = await start(plain_disk)
    code = f"""
os.makedirs("/workspace/one/two")
os.rmdir("/workspace/before")
open("/workspace/one/two/file", "w").close()
os.symlink("{outside}", "/workspace/link")
os.symlink("/etc", "/workspace/folder")
answer = os.getuid()
"""
    uid = await ask(worker, code)
    assert plain_disk.stat().st_uid == uid != 0
    await worker.end()
    assert {path.lstat().st_uid for path in [plain_disk, *plain_disk.rglob("*")]} == {0}
    assert outside.stat().st_uid == Path("/etc").stat().st_uid == 0


@as_root
async def test_a_workspace_that_a_killed_host_had_lent(start: Start, plain_disk: Path) -> None:
    (plain_disk / "file").touch()
    for path in (plain_disk, plain_disk / "file"):
        os.chown(path, 0x70000001, 0x70000001)
    worker = await start(plain_disk)
    assert await ask(worker, "answer = open('/workspace/file', 'a').write('more')") == 4
    await worker.end()
    assert {path.stat().st_uid for path in (plain_disk, plain_disk / "file")} == {0}


async def test_what_the_host_runs_is_read_only(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "project" / "venv" / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(workspace / "project" / "venv"))
    worker = await start(workspace)
    tries = {
        "open('/workspace/project/file', 'w').close()": None,
        "open('/workspace/project/venv/file', 'w').close()": "OSError",
        "open('/workspace/project/venv/lib/file', 'w').close()": "OSError",
        "os.rename('/workspace/project', '/workspace/other')": "OSError",
        "os.rename('/workspace/project/venv', '/workspace/other')": "OSError",
    }
    assert {code: await ask(worker, code) for code in tries} == tries


async def test_readable_folders_are_at_their_own_paths(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    (folder / "file").write_text("text")
    (folder / "file").chmod(0o644)
    worker = await start(readable=[folder])
    assert await ask(worker, f"answer = open({str(folder / 'file')!r}).read()") == "text"
    assert await ask(worker, f"open({str(folder / 'file')!r}, 'a')") in ("OSError", "PermissionError")


async def test_code_that_others_may_not_read_is_copied(start: Start, code: Path, temporary: Path) -> None:
    code.chmod(0o700)
    worker = await start()
    assert [path.name for folder in temporary.iterdir() for path in folder.iterdir()] == ["guest"]
    assert await ask(worker, "answer = 1") == 1
    await worker.end()
    assert list(temporary.iterdir()) == []


async def test_probing_says_what_the_engine_is(docker_image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall, "DEFAULT_IMAGE", docker_image)
    report = await wall.DockerWall().probe()
    assert report.available
    assert report.name == "docker"
    assert "seccomp" in report.detail
    assert docker_image in report.detail


async def test_probing_without_the_image(docker_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall, "DEFAULT_IMAGE", "coderoom-none:test")
    report = await wall.DockerWall().probe()
    assert not report.available
    assert "coderoom-none:test" in report.detail
    assert report.remedy == "docker pull coderoom-none:test"


async def test_a_whole_sandbox(docker_image: str, engine: Any) -> None:
    async with Sandbox("docker", options={"image": docker_image}) as sandbox:
        assert (await sandbox.run("import os; os.getpid() != 1 and 6 * 7")).value == 42
        async with sandbox.session() as session:
            await session.run("x = 1")
            assert (await session.run("x + 1")).value == 2
        assert len(ours(engine)) == 1

"""The Docker wall, on a real engine, with a stub for a worker."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]
import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox import Limits
from coderoom.sandbox._walls import _owner
from coderoom.sandbox._walls._base import WallSpec
from coderoom.sandbox._walls._docker import DockerWall
from coderoom.sandbox._walls._docker_container import DockerWorker
from tests.support.docker import client

from .docker_stub import ask, write_stub

Start = Callable[..., Awaitable[DockerWorker]]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made; nothing may be left there."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    assert str(folder) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


@pytest.fixture
def engine(docker_host: str) -> Iterator[Any]:
    """A client of the engine. No container of ours may be left there."""
    engine = client(docker_host)
    yield engine
    assert ours(engine) == []
    engine.close()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    # The folders of pytest are closed to others, which is nothing to the container.
    return write_stub(tmp_path)


@pytest.fixture
def wall(code: Path, docker_image: str) -> DockerWall:
    return DockerWall(code=code, image=docker_image)


@pytest.fixture
async def start(wall: DockerWall, engine: Any) -> AsyncIterator[Start]:
    workers: list[DockerWorker] = []

    async def start(workspace: Path | None = None, **more: Any) -> DockerWorker:
        worker = await wall.start(a_spec(workspace, **more))
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        await worker.end()


def a_spec(workspace: Path | None = None, **more: Any) -> WallSpec:
    wanted = {"network": False, "env": {}, "limits": Limits(), **more}
    return WallSpec(workspace=workspace, **wanted)


def ours(engine: Any) -> list[str]:
    found = engine.containers(all=True, filters={"label": "coderoom"})
    return [each["Id"] for each in found if each["Labels"]["coderoom"].split()[2:3] == [str(os.getpid())]]


async def gone(engine: Any, container: str) -> None:
    """Wait until a container is no more; the test's own deadline is the only one."""
    while True:
        try:
            await asyncio.to_thread(engine.inspect_container, container)
        except docker.errors.NotFound:
            return
        await asyncio.sleep(0.05)


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
               "/run/coderoom/_inside", "/tmp", "/workspace", "/dev/shm"):
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
    # What the container itself has is neither from here nor told to anyone who may ask the engine.
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
    assert [path.name for folder in temporary.iterdir() for path in folder.iterdir()] == ["_inside"]
    assert await ask(worker, "answer = 1") == 1
    await worker.end()
    assert list(temporary.iterdir()) == []


async def test_ending_leaves_nothing(start: Start, engine: Any) -> None:
    worker = await start()
    assert ours(engine) == [worker.container.id]
    await ask(worker, "import subprocess; subprocess.Popen(['sleep', '1000'])")
    await worker.end()
    assert ours(engine) == []
    await worker.end()
    worker.kill()


async def test_killing_needs_no_event_loop(start: Start, engine: Any) -> None:
    worker = await start()
    await asyncio.to_thread(worker.kill)
    assert ours(engine) == []


async def test_a_worker_that_ends_says_why_and_removes_itself(start: Start, engine: Any) -> None:
    worker = await start()
    assert worker.describe_death() == "It is still running."
    with pytest.raises(ValueError, match="Expecting value"):
        await ask(worker, "sys.stderr.write('my last words'); sys.stderr.flush(); os._exit(7)")
    await gone(engine, worker.container.id)
    assert worker.describe_death() == "Its container ended with exit code 7. It wrote: my last words"


async def test_a_worker_that_needs_too_much_memory_says_so(start: Start, engine: Any) -> None:
    worker = await start(options={"memory": "64m"})
    with pytest.raises((ValueError, ConnectionError)):
        await ask(worker, "answer = len(b'x' * (256 << 20))")
    await gone(engine, worker.container.id)
    assert (
        "exit code 137. It was killed, most likely for needing more memory than its 64 MiB." in worker.describe_death()
    )


async def test_much_on_standard_error_holds_nothing_up(start: Start) -> None:
    worker = await start()
    assert await ask(worker, "sys.stderr.write('x' * 100_000 + 'end'); sys.stderr.flush(); answer = 1") == 1
    while not worker.describe_death().endswith("xend"):
        await asyncio.sleep(0.05)
    assert len(worker.describe_death()) < 5000


async def test_the_hosts_death_ends_the_container(
    code: Path, docker_image: str, engine: Any, tmp_path: Path, temporary: Path
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    command = [sys.executable, "-m", f"{__package__}.docker_host_process", str(code), docker_image, str(workspace)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as host:
        assert host.stdout is not None
        container = host.stdout.readline().strip()
        assert engine.inspect_container(container)["State"]["Running"]
        host.send_signal(signal.SIGKILL)
    await gone(engine, container)


async def test_the_next_start_removes_what_the_dead_left(start: Start, engine: Any, docker_image: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as alive:
        boot, namespace, pid, began = _owner.ours().split()
        living = Path(f"/proc/{alive.pid}/stat").read_text().rpartition(")")[2].split()[19]
        labels = {
            "dead": f"{boot} {namespace} {alive.pid} {int(living) - 1}",
            "other-boot": f"{'0' * 36} {namespace} {pid} {began}",
            "alive": f"{boot} {namespace} {alive.pid} {living}",
            "other-namespace": f"{boot} 1 {pid} 1",
            "not-ours": "something",
            "empty": "",
        }
        made = {
            name: engine.create_container(docker_image, labels={"coderoom": label}) for name, label in labels.items()
        }
        stranger = engine.create_container(docker_image)
        try:
            await start()
            there = {each["Id"] for each in engine.containers(all=True)}
            kept = {name for name, each in made.items() if each["Id"] in there}
            assert kept == {"alive", "other-namespace", "not-ours", "empty"}
            assert stranger["Id"] in there
        finally:
            for each in (*made.values(), stranger):
                with contextlib.suppress(docker.errors.NotFound):
                    engine.remove_container(each["Id"], force=True)


async def test_a_start_that_is_cancelled_leaves_nothing(wall: DockerWall, engine: Any, temporary: Path) -> None:
    for delay in (0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25):
        starting = asyncio.create_task(wall.start(a_spec()))
        await asyncio.sleep(delay)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await starting).end()
    while ours(engine) or any(temporary.iterdir()):
        await asyncio.sleep(0.05)


@pytest.fixture
def make_image(engine: Any, docker_image: str) -> Iterator[Callable[[str, str | None], str]]:
    """Makes images that have a script in the place of Python, or none."""
    made = []

    def make(name: str, script: str | None) -> str:
        if script is None:
            empty = io.BytesIO()
            tarfile.open(fileobj=empty, mode="w").close()
            engine.import_image_from_data(empty.getvalue(), repository=name, tag="test")
        else:
            container = engine.create_container(docker_image)["Id"]
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                entry = tarfile.TarInfo("usr/local/bin/python3")
                entry.mode, entry.size = 0o755, len(script)
                archive.addfile(entry, io.BytesIO(script.encode()))
            engine.put_archive(container, "/", packed.getvalue())
            engine.commit(container, repository=name, tag="test")
            engine.remove_container(container)
        made.append(f"{name}:test")
        return f"{name}:test"

    yield make
    for image in made:
        engine.remove_image(image)


async def test_an_image_without_python(start: Start, make_image: Callable[[str, str | None], str]) -> None:
    image = make_image("coderoom-nothing", None)
    with pytest.raises(SandboxUnavailable, match=r"(?s)python3.*needs an image with Python 3.8 or later"):
        await start(options={"image": image})


async def test_an_image_with_an_old_python(start: Start, make_image: Callable[[str, str | None], str]) -> None:
    program = "import sys, runpy; sys.version_info = (3, 7, 4); del sys.argv[:3]; "
    program += "runpy.run_path(sys.argv[0], run_name='__main__')"
    image = make_image("coderoom-old", f'#!/bin/sh\nexec /usr/bin/python3 -c "{program}" "$@"\n')
    with pytest.raises(SandboxUnavailable, match=r"'coderoom-old:test' has Python 3\.7\.4; the sandbox needs 3\.8"):
        await start(options={"image": image})


async def test_a_worker_that_never_connects(start: Start, make_image: Callable[[str, str | None], str]) -> None:
    image = make_image("coderoom-failing", "#!/bin/sh\necho some reason >&2\nexit 5\n")
    with pytest.raises(SandboxUnavailable, match=r"failing:test' ended with exit code 5. It wrote: some reason"):
        await start(options={"image": image})


async def test_an_image_that_is_not_there(start: Start) -> None:
    image = "localhost:1/coderoom-none:test"
    with pytest.raises(SandboxUnavailable, match=rf"{image}' is not on this machine. Get it \(docker pull {image}\)"):
        await start(options={"image": image, "pull": False})
    with pytest.raises(SandboxUnavailable, match=r"could not be pulled \(.+\). Get it \(docker pull"):
        await start(options={"image": image})


async def test_a_device_that_is_not_there(start: Start) -> None:
    with pytest.raises(SandboxUnavailable, match=r"The Docker engine failed: .*gpu"):
        await start(options={"gpus": "all"})


async def test_a_runtime_that_is_not_there(start: Start) -> None:
    with pytest.raises(SandboxUnavailable, match=r"(?i)The Docker engine failed: .*nothing-like-it"):
        await start(options={"runtime": "nothing-like-it"})


async def test_a_wrong_option(start: Start) -> None:
    with pytest.raises(RequestError, match=r"there is no 'imagge'; did you mean 'image'\?"):
        await start(options={"imagge": "x"})


@pytest.mark.parametrize("folder", ["/", "/etc"])
async def test_system_folders_are_not_shown(start: Start, folder: str) -> None:
    with pytest.raises(RequestError, match="home or system folder"):
        await start(Path(folder))
    with pytest.raises(RequestError, match="home or system folder"):
        await start(readable=[Path(folder)])


async def test_a_workspace_that_is_not_there(start: Start, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"nowhere' is no folder; make it first"):
        await start(tmp_path / "nowhere")


async def test_probing_says_what_the_engine_is(wall: DockerWall, docker_image: str) -> None:
    report = await wall.probe()
    assert report.available
    assert report.name == "docker"
    assert "seccomp" in report.detail
    assert docker_image in report.detail


async def test_probing_without_the_image(docker_host: str) -> None:
    report = await DockerWall(image="coderoom-none:test").probe()
    assert not report.available
    assert "coderoom-none:test" in report.detail
    assert report.remedy == "docker pull coderoom-none:test"

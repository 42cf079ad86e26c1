"""Workspaces whose changes are kept apart: what the code sees, what of it is a diff, and what comes back."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import ChangedMeanwhile, Limits, Sandbox, Session

from .places import Place, on_both_shapes, on_walls

FILES = {
    "notes.txt": b"one\ntwo\nthree\n",
    "dos.txt": b"a\r\nb\r\n",
    "no newline": b"a\nb",
    "data.bin": bytes(range(256)),
    "moved.txt": b"move me\n",
    "old/deep/x": b"x\n",
    "old/y": b"y\n",
    "tool.sh": b"#!/bin/sh\n",
    "sub/kept": b"kept\n",
    "gone": b"gone\n",
    "was a file": b"1\n",
    "was a folder/in it": b"2\n",
    "latin": "größer".encode("latin-1"),
}
CHANGE_ALL = r"""
import os, shutil
open("notes.txt", "a").write("four")
open("dos.txt", "a", newline="").write("c\r\n")
open("no newline", "a").write("c\nd")
open("data.bin", "r+b").write(b"\0\0\xff")
os.rename("moved.txt", "sub/moved here.txt")
os.chmod("tool.sh", 0o755)
os.remove("gone")
shutil.rmtree("old"); os.mkdir("old"); open("old/y", "w").write("new\n")
os.remove("was a file"); os.mkdir("was a file"); open("was a file/now", "w").write("1")
shutil.rmtree("was a folder"); open("was a folder", "w").write("file\n")
os.symlink("notes.txt", "link"); os.remove("sub/link"); os.symlink("kept", "sub/link")
open("latin", "a", encoding="latin-1").write(" ß")
for name in ("new\nline", 'quo"te', "tab\there", "ümlaut", "back\\slash", " blank", "empty", b"\xff\xfe"):
    open(name, "w").write("" if name == "empty" else "text\n")
os.makedirs("a/b/c"); open("a/b/c/d", "w").write("d\n"); os.chmod("a/b/c/d", 0o700)
os.link("notes.txt", "hard link")
"""


def make(folder: Path) -> Path:
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "sub" / "link").symlink_to("nowhere")
    return folder


def content(folder: Path) -> dict[str, object]:
    """What git knows of a folder."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR)
    return found


def apply(patch: str, folder: Path) -> None:
    command = ["git", "apply", "--whitespace=nowarn", "-"]
    done = subprocess.run(command, cwd=folder, input=patch.encode(), capture_output=True, check=False)
    assert done.returncode == 0, f"{done.stderr.decode()}\n{patch}"


async def ok(session: Session, code: str) -> str:
    result = await session.run(code)
    assert result.success, result.output
    return result.output


def overlay(place: Place, folder: Path, **arguments: object) -> Sandbox:
    return place.sandbox(workspace=folder, workspace_mode="overlay", **arguments)


@on_walls("bubblewrap", "namespaces", "none", "landlock")
async def test_the_diff_gives_what_commit_gives(place: Place, tmp_path: Path) -> None:
    folder, copy = make(tmp_path / "folder"), make(tmp_path / "copy")
    before = content(folder)
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(session, CHANGE_ALL)
        changes, patch = await session.changes(), await session.diff()
        assert content(folder) == before
        committed = await session.commit()
        assert not committed.refused
        assert committed.written == changes.listed
        assert not await session.changes()
    assert not changes.left_out
    assert not patch.left_out
    apply(str(patch), copy)
    assert content(copy) == content(folder) != before
    kinds = {(change.kind, change.path) for change in changes}
    assert ("renamed", "sub/moved here.txt") in kinds
    assert {("modified", "tool.sh"), ("deleted", "old/deep/x"), ("modified", "sub/link")} < kinds
    assert (folder / "a/b/c/d").stat().st_mode & 0o777 == 0o700


@on_both_shapes
async def test_each_session_has_its_own_changes(place: Place, tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    async with overlay(place, folder) as sandbox:
        await sandbox.run("open('notes.txt', 'w').write('of a run')")
        async with sandbox.session() as first, sandbox.session() as second:
            await ok(first, "open('notes.txt', 'w').write('first')")
            assert await ok(second, "print(open('notes.txt').read())") == "one\ntwo\nthree\n\n"
            assert not await second.changes()
            assert [each.path for each in await first.changes()] == ["notes.txt"]
    # They stay when the sandbox has ended.
    assert "+first" in str(await first.diff())
    await first.commit()
    assert (folder / "notes.txt").read_text() == "first"


@on_both_shapes
async def test_what_others_have_changed_is_not_overwritten(place: Place, tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(
            session,
            "import os, shutil\nfor name in ('notes.txt', 'dos.txt', 'theirs', 'gone'): open(name, 'w').write('ours')\n"
            "shutil.rmtree('old'); open('sub/new', 'w'); os.replace('data.bin', 'tool.sh')",
        )
        (folder / "notes.txt").write_text("theirs")
        (folder / "theirs").write_text("theirs")
        (folder / "gone").unlink()
        (folder / "old" / "theirs").write_text("theirs")
        (folder / "sub" / "kept").write_text("not ours")
        now = content(folder)
        with pytest.raises(ChangedMeanwhile, match="nothing was written") as caught:
            await session.commit()
        assert caught.value.paths == ("gone", "notes.txt", "old/theirs", "theirs")
        assert content(folder) == now
        await session.discard()
        await ok(session, "open('sub/new', 'w').write('ours')")
        await session.commit()
        assert content(folder) == now | {"sub/new": (b"ours", False)}


@on_both_shapes
async def test_a_folder_that_became_a_link_is_not_followed(place: Place, tmp_path: Path) -> None:
    folder, outside = make(tmp_path / "folder"), tmp_path / "outside"
    outside.mkdir()
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(session, "open('sub/new', 'w').write('ours'); open('old/y', 'w').write('ours')")
        (folder / "sub").rename(folder / "other")
        (folder / "sub").symlink_to(outside)
        with pytest.raises(ChangedMeanwhile, match="sub"):
            await session.commit()
    assert not list(outside.iterdir())
    assert (folder / "old" / "y").read_bytes() == b"y\n"


@on_both_shapes
async def test_what_could_run_programs_or_lead_out_is_refused(place: Place, tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]\n")
    code = """
import os, shutil
os.makedirs("sub/.GIT/hooks"); open("sub/.GIT/hooks/post-checkout", "w").write("#!/bin/sh")
open(".git/config", "a").write("fsmonitor = evil")
os.symlink("/etc/passwd", "absolute"); os.symlink("../x", "up"); os.symlink("inside/..", "through")
os.symlink("..", "sub/fine"); os.symlink(".", "sub/itself")
for name in ("objects", "refs", "hooks"): os.makedirs(f"bare/{name}")
for name in ("bare/HEAD", "bare/config", "bare/hooks/post-checkout", "sub/config"): open(name, "w").write("x")
open("notes.txt", "w").write("new")
"""
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(session, code)
        refused = {each.path for each in await session.changes() if each.refused}
        bare = {"bare/HEAD", "bare/config", "bare/hooks/post-checkout"}
        assert refused == {"sub/.GIT/hooks/post-checkout", ".git/config", "absolute", "up", "through", *bare}
        assert "evil" not in str(await session.diff())
        committed = await session.commit()
        assert {each.path for each in committed.refused} == refused
        written = {"notes.txt", "sub/fine", "sub/itself", "sub/config", "bare/objects", "bare/refs"}
        assert {each.path for each in committed.written} == written
        assert (folder / ".git" / "config").read_text() == "[core]\n"
        assert not os.path.lexists(folder / "absolute")
        await session.commit(unsafe=True)
        assert "evil" in (folder / ".git" / "config").read_text()
        assert os.path.lexists(folder / "absolute")


@pytest.mark.slow
@on_both_shapes
async def test_hostile_files_cost_little_and_are_named(place: Place, tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    code = """
import os, random
os.mkfifo("pipe"); os.remove("gone"); os.mkfifo("gone")
open("sparse", "w").truncate(200 << 20)
open("secret", "w").write("x"); os.chmod("secret", 0)
numbers = random.Random(1)
for name in ("left", "notes.txt"):
    open(name, "w").writelines(f"{numbers.randrange(9)}\\n" for _ in range(200_000))
here = os.getcwd()
for _ in range(250):
    os.mkdir("d"); os.chdir("d")
os.chdir(here)
"""
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(session, code)
        patch = await session.diff()
        assert any(each.startswith("sparse: larger") for each in patch.left_out)
        assert any(each.startswith("pipe: is neither") for each in patch.left_out)
        assert any(each.endswith("too deep to be looked at") for each in patch.left_out)
        await session.commit()
        assert (folder / "gone").read_bytes() == FILES["gone"]
        assert (folder / "sparse").stat().st_blocks == 0


@pytest.mark.slow
@on_both_shapes
async def test_what_seems_larger_than_it_is_costs_little(place: Place, tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    sparse = """
import os
for number in range(300):
    with open(f"sparse {number}", "w") as file:
        file.truncate((15 if number % 2 else 200) << 20)
"""
    links = """
with open("large", "wb") as file:
    file.write(b"x"); file.truncate(200 << 20)
for number in range(10): os.link("large", f"link {number}")
"""
    paths = """
for _ in range(190):
    os.mkdir("d" * 250); os.chdir("d" * 250)
for number in range(800): open(f"{number}", "w").close()
"""
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(session, sparse)
        patch = await session.diff()
        assert any("the diff is too large" in each for each in patch.left_out)
        await session.commit(patch)
        assert sum(path.stat().st_blocks for path in folder.glob("sparse*")) == 0
        await ok(session, links)
        for work in (session.commit(), session.checkpoint(files=True)):
            with pytest.raises(RequestError, match="hard links"):
                await work
        assert not (folder / "large").exists()
        await session.discard()
        await ok(session, paths)
        with pytest.raises(RequestError, match="too many"):
            await session.commit()


@on_both_shapes
async def test_others_get_no_right_to_write(place: Place, tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    (folder / "notes.txt").chmod(0o664)
    code = "import os\nfor name in ('new', 'notes.txt', 'gone'): open(name, 'a').write('x'); os.chmod(name, 0o777)"
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(session, code)
        await session.commit()
        assert not await session.changes()
    modes = {name: (folder / name).stat().st_mode & 0o7777 for name in ("new", "notes.txt", "gone")}
    assert modes == {"new": 0o755, "notes.txt": 0o775, "gone": 0o755}


@on_both_shapes
async def test_a_rollback_and_discard_return_to_the_files(place: Place, tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(session, CHANGE_ALL)
        mark = await session.checkpoint(files=True)
        expected = await session.diff()
        for _ in range(2):
            await ok(
                session,
                "import os, shutil\nshutil.rmtree('a'); open('a', 'w').write('file'); os.remove('link')\n"
                "shutil.rmtree('sub'); open('notes.txt', 'w'); open('later', 'w'); os.mkdir('gone'); os.mkfifo('pipe')",
            )
            await session.rollback(mark)
            assert await session.diff() == expected
        await session.discard()
        assert not await session.changes()
        seen = await ok(session, "import os\nprint(sorted(os.listdir('.')), open('old/deep/x').read())")
        assert seen == f"{sorted(os.listdir(folder))} x\n\n"  # noqa: PTH208


async def test_what_was_changed_after_the_diff_is_not_written(tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    async with Sandbox(workspace=folder, workspace_mode="overlay") as sandbox, sandbox.session() as session:
        await ok(
            session,
            "import mmap, os\nopen('notes.txt', 'w').write('good'); os.mkdir('d'); open('d/x', 'w').close()\n"
            "memory = mmap.mmap(os.open('notes.txt', os.O_RDWR), 4); memory[:4] = b'good'",
        )
        patch = await session.diff()
        await ok(session, "memory[:4] = b'evil'")  # This leaves no trace in the file's times.
        with pytest.raises(RequestError, match="after this diff"):
            await session.commit(patch)
        assert (folder / "notes.txt").read_bytes() == FILES["notes.txt"]
        await session.commit(await session.diff())
        assert (folder / "notes.txt").read_text() == "evil"


# A process that is in the namespace of a fork is not stopped with the others.
FLIPS = r"""
import ctypes, os, random, time
libc = ctypes.CDLL(None)
own = os.readlink("/proc/self/ns/user")
def space(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/user")
    except OSError:
        return own
pid = next(name for name in os.listdir("/proc") if name.isdigit() and space(name) != own)
def write(text):
    with os.fdopen(os.open("notes.txt", os.O_WRONLY), "w") as file:
        file.write(text)
write("good" * 5000)
for number in range(20):  # They take time between looks at the same file.
    open(f"{number}", "w").write("x")
if not os.fork():
    for kind, number in (("user", 0x10000000), ("pid", 0x20000000)):
        libc.setns(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), number)
    if not os.fork():
        file = os.open("notes.txt", os.O_WRONLY)
        os.ftruncate(file, 20_000)
        while True:
            for text in (b"evil", b"good"):
                os.pwrite(file, text * 5000, 0)
                time.sleep(0.004 * random.random())
    os._exit(0)
os.wait()
"""


@pytest.mark.attack
async def test_a_process_that_is_not_stopped_cannot_get_unseen_files_written(tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    async with Sandbox(workspace=folder, workspace_mode="overlay") as sandbox, sandbox.session() as session:
        (fork,) = await session.fork()
        await fork.start()
        await ok(session, FLIPS)
        for _ in range(600):
            patch = await session.diff()
            shown = [line[1:] for line in str(patch).splitlines() if line.startswith(("+good", "+evil"))]
            with contextlib.suppress(RequestError):  # The process has changed something.
                await session.commit(patch)
                assert not shown or shown == [(folder / "notes.txt").read_text()]
        await fork.close()


async def test_the_changes_have_the_limit_of_the_disk(tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    limits = Limits(disk_bytes=1 << 20)
    sandbox = Sandbox(workspace=folder, workspace_mode="overlay", limits=limits)
    async with sandbox, sandbox.session() as session:
        result = await session.run("open('large', 'wb').write(bytes(2 << 20))")
        assert result.limit == "disk"
        await ok(session, "import os; os.remove('large'); open('small', 'w').write('x')")
        await session.commit()
    assert (folder / "small").read_text() == "x"


async def test_a_session_without_an_overlay_says_what_is_missing(tmp_path: Path) -> None:
    async with Sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
        with pytest.raises(RequestError, match='workspace_mode="overlay"'):
            await session.changes()
    with pytest.raises(RequestError, match="needs a workspace"):
        Sandbox(workspace_mode="overlay")
    with pytest.raises(RequestError, match="neither 'direct' nor 'overlay'"):
        Sandbox(workspace=tmp_path, workspace_mode="overly")  # type: ignore[arg-type]
    session = Sandbox(workspace=tmp_path, workspace_mode="overlay").session()
    await session.close()
    with pytest.raises(RequestError, match="never started"):
        await session.diff()


@on_both_shapes
async def test_some_paths_are_written_or_taken_back_and_the_others_stay(place: Place, tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    before = content(folder)
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(session, CHANGE_ALL)
        everything = await session.diff()
        for paths in (["a/b"], ["sub/moved here.txt"], ["was a file/now", "was a folder"]):
            patch = await session.diff(paths)
            assert patch.parts.items() <= everything.parts.items()
            with pytest.raises(RequestError, match="after this diff"):
                await session.commit(patch)
            await session.commit(patch, paths=paths)
        now = content(folder)
        gone = {"moved.txt", "was a file", "was a folder/in it"}
        assert now == {path: each for path, each in before.items() if path not in gone} | {
            "a/b/c/d": (b"d\n", True),
            "sub/moved here.txt": (b"move me\n", False),
            "was a file/now": (b"1", False),
            "was a folder": (b"file\n", False),
        }
        await session.discard(["notes.txt", "old", "gone", "hard link"])
        left = {change.path for change in await session.changes()}
        assert left.isdisjoint(["notes.txt", "old/deep/x", "old/y", "gone", "hard link", "a/b/c/d"])
        assert {"dos.txt", "latin", "tool.sh"} <= left
        assert await ok(session, "print(open('old/deep/x').read(), open('gone').read())") == "x\n gone\n\n"
        with pytest.raises(RequestError, match=r"Nothing has changed at notes\.txt"):
            await session.diff(["notes.txt"])


@on_both_shapes
async def test_a_file_that_others_have_changed_is_taken_over_and_changed_again(place: Place, tmp_path: Path) -> None:
    folder = make(tmp_path / "folder")
    async with overlay(place, folder) as sandbox, sandbox.session() as session:
        await ok(session, "open('notes.txt', 'a').write('ours\\n'); open('new', 'w').write('ours')")
        await session.commit()
        (folder / "notes.txt").write_text("theirs\n")
        (folder / "new").unlink()
        await session.discard(["notes.txt", "new"])
        assert not await session.changes()
        assert (
            await ok(session, "import os\nprint(open('notes.txt').read(), os.path.exists('new'))") == "theirs\n False\n"
        )
        await ok(session, "open('notes.txt', 'a').write('ours\\n'); open('new', 'w').write('again')")
        await session.commit()
        assert (folder / "notes.txt").read_text() == "theirs\nours\n"
        assert (folder / "new").read_text() == "again"

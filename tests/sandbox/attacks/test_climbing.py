# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Code that climbs from what it is given to what runs it: frames, the collector's objects, subclasses, threads."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, open_files, still_works

FIND = """
import gc, os, socket, sys, threading
gc.unfreeze()
def find(name):
    return [item for item in gc.get_objects() if type(item).__name__ == name and type(item).__module__.startswith("coderoom_guest")]
reached = []
if not find("Channel") or not any(type(item).__name__ == "RoomSupervisor" for item in gc.get_objects()): reached.append("it was no attack: the names have changed")
def reach(name, work):
    try: result = work()
    except BaseException as error: return
    reached.append((name, repr(result)[:200]))
"""
CLIMBS = {
    "the keeper's socket": """
for keeper in find("RoomSupervisor"):
    for event in ("room", "killed", "limit", "ended", "failed"):
        reach(event, lambda: keeper.control.send({"event": event, "id": 1, "limit": "memory", "error": "x", "status": 0}))
    reach("receive", lambda: keeper.control.receive())
for channel in find("Channel"):
    if not any(channel.key): reach("zygote", lambda: channel.send({"event": "ready"}))
""",
    "its namespaces": """
from coderoom_guest.isolation import boot, linux, mounts
for keeper in find("RoomSupervisor"):
    reach("a room", lambda: boot.enter_room(keeper._config, print))
    reach("folders", lambda: mounts.cover("/tmp", 4096, "1777", ()))
reach("a mount", lambda: mounts.mount_tmpfs("/tmp", 4096, "1777"))
reach("proc", lambda: mounts.mount_proc())
reach("writable", lambda: mounts.bind("/", "/tmp", writable=True))
reach("the tree", lambda: linux.libc("umount2", b"/", 2))
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000):
    reach(flag, lambda: linux.libc("unshare", flag))
for name in os.listdir("/proc/1/ns") if os.access("/proc/1/ns", os.R_OK) else []:
    reach(name, lambda: linux.libc("setns", os.open("/proc/1/ns/" + name, os.O_RDONLY), 0))
""",
    "its rights": """
from coderoom_guest.isolation import linux, lockdown, boot
import resource, struct
reach("a user", lambda: os.setuid(0))
reach("a group", lambda: os.setgroups([0]))
reach("capabilities", lambda: linux.syscall("capset", struct.pack("=Ii", 0x20080522, 0), bytes([255] * 24)))
reach("ambient", lambda: linux.libc("prctl", 47, 2, 21, 0, 0))
reach("privileges", lambda: linux.libc("prctl", 38, 0, 0, 0, 0))
reach("no filter", lambda: linux.libc("prctl", 22, 0, 0, 0, 0))
reach("a device", lambda: os.mknod("/tmp/sda", 0o60600, os.makedev(8, 0)))
reach("another root", lambda: os.chroot("/tmp"))
reach("set-user-ID", lambda: [open("/tmp/s", "w").close(), os.chmod("/tmp/s", 0o4755)])
for name in ("RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_MEMLOCK", "RLIMIT_CORE"):
    number = getattr(resource, name)
    hard = resource.getrlimit(number)[1]
    reach(name, lambda: resource.setrlimit(number, (hard + 1, hard + 1)))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    if int(status[name], 16): reached.append((name, status[name]))
if status["NoNewPrivs"].strip() != "1" or status["Seccomp"].strip() != "2" or "0" in status["Uid"].split(): reached.append(status)
""",
    "the host's objects": """
import types
for item in gc.get_objects():
    if isinstance(item, types.ModuleType) and item.__name__.split(".")[0] in ("coderoom", "autogen_core", "pydantic"): reached.append(item.__name__)
for cls in object.__subclasses__():
    if cls.__module__.split(".")[0] == "coderoom": reached.append(cls.__module__)
frame = sys._getframe()
while frame is not None:
    if "coderoom/sandbox" in frame.f_code.co_filename: reached.append(frame.f_code.co_filename)
    frame = frame.f_back
""",
    "other threads": """
for number, frame in sys._current_frames().items():
    if number != threading.get_ident(): reached.append(str(frame))
""",
    "setuid programs": """
import stat, subprocess
for folder in os.environ["PATH"].split(":") + ["/usr/sbin", "/sbin", "/usr/lib/openssh", "/usr/lib/dbus-1.0"]:
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        try: facts = os.stat(path)
        except OSError: continue
        if stat.S_ISREG(facts.st_mode) and facts.st_mode & stat.S_ISUID and not os.statvfs(path).f_flag & os.ST_NOSUID: reached.append(path)
reach("su", lambda: subprocess.run(["unshare", "-r", "true"], check=True, capture_output=True))
""",
    "places that can be written": """
for top in ("/", "/usr", "/etc", "/dev", "/bin", "/lib", "/run", "/var", "/sys", "/proc", "/home", sys.prefix, os.path.dirname(os.__file__),
            os.path.dirname(sys.modules["coderoom_guest"].__path__[0]), sys.modules["coderoom_guest"].__path__[0], *sys.path):
    if not top or top.startswith(("/workspace", "/tmp")): continue
    reach(top, lambda: open(os.path.join(top, "canary"), "x"))
    reach(top, lambda: os.rename(os.path.join(top, os.listdir(top)[0]), "/tmp/canary"))
reach("a program", lambda: open(os.path.realpath(sys.executable), "r+b"))
""",
    "the keeper's work": """
for keeper in find("RoomSupervisor"):
    keeper._processes.signal_all = lambda *_: None
    reach("serve", lambda: [keeper.watch(), 1 / 0])
    reach("fork", lambda: [keeper._fork(lambda *_: os._exit(0), {"id": 1}, []), 1 / 0])
for runner in find("Runner"):
    runner._channel.key = bytes(8) if False else runner._channel.key
""",
}


async def climb(wall: str, code: str) -> dict[str, Any]:
    async with Sandbox(wall, preload=["decimal"]) as sandbox, sandbox.session() as innocent:
        await innocent.run("x = 41")
        once = await attempt(sandbox, f"{FIND}{code}\nreached", 20)
        async with sandbox.session() as session:
            await session.run("y = 1")
            await session.rollback(await session.checkpoint())
            kept = await attempt(session, f"{FIND}{code}\nreached", 20)
        other = (await attempt(innocent, "x + 1"))["value"]
        return {"once": once, "kept": kept, "other": other, "works": await still_works(sandbox), "open": open_files()}


@pytest.mark.parametrize("name", CLIMBS)
def test_it_reaches_nothing(caged: Caged, name: str) -> None:
    found = caged(climb, CLIMBS[name])
    assert found["works"]
    assert found["other"] == 42
    assert found["open"] < 30, found
    assert found["once"]["value"] == [], found["once"]
    assert found["kept"]["value"] == [], found["kept"]
